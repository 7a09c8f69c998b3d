"""Checkpoints and predictions that others made become done runs, whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.bert.vocabulary import Vocabulary
from multiberts.launch.imports.register import FILE, checkpoint_run, imported_runs, predictions_run
from multiberts.launch.imports.released import find_checkpoints, import_released
from multiberts.launch.plan.experiment import Experiment, make_plan
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.runs.directory import RunDirectory, fingerprint
from multiberts.runs.errors import UserError
from multiberts.runs.files import sha256_of_file
from multiberts.tests.fake_hub import FakeHub, hub_command

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c"]
Make = Callable[..., Path]


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    """Tiny checkpoints by layout and seed, as they are published: without our record."""
    from multiberts.bert.checkpoint.checkpoint import PROVENANCE, write_checkpoint
    from multiberts.bert.model.configuration import BertConfig
    from multiberts.bert.model.initialization import initial_parameters

    folder = tmp_path_factory.mktemp("weights")
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(VOCABULARY) + "\n")
    config = BertConfig(
        vocab_size=len(VOCABULARY), hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=16, max_position_embeddings=16,
    )  # fmt: skip

    def made(layout: str, seed: int) -> Path:
        place = folder / f"{layout}-{seed}"
        if not place.exists():
            parameters = initial_parameters(config, seed)
            write_checkpoint(
                place, parameters, config, Vocabulary.open(vocabulary), {}, layout=layout
            )
            (place / PROVENANCE).unlink()
        return place

    return made


@pytest.fixture
def release(tmp_path: Path, weights: Callable[[str, int], Path]) -> Path:
    """Two seeds in the released layout, one with an earlier step, and a third in the other layout."""
    folder = tmp_path / "multiberts"
    for name, layout, seed in (
        ("multiberts-seed_0", "tf1", 0),
        ("multiberts-seed_0-step_1000k", "tf1", 1),
        ("multiberts-seed_1", "tf1", 2),
        ("models--google--multiberts-seed_2/snapshots/0a1b", "hugging_face", 3),
    ):
        shutil.copytree(weights(layout, seed), folder / name)
    return folder


def facts(runs: list[PlannedRun]) -> list[tuple[Any, ...]]:
    names = ("procedure", "pretrain_seed", "num_steps")
    return [tuple(run.parameters[name] for name in names) for run in runs]


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_released_checkpoints_become_done_runs(tmp_path: Path, release: Path) -> None:
    from multiberts.bert.checkpoint.checkpoint import read_checkpoint

    root = tmp_path / "root"
    import_released(root=str(root), checkpoints=str(release))
    runs = imported_runs(root)
    assert facts(runs) == [
        ("base", 0, 1_000_000), ("base", 0, 2_000_000), ("base", 1, 2_000_000),
        ("base", 2, 2_000_000),
    ]  # fmt: skip
    for run in runs:
        assert run.done(root) and run.stage == "import_checkpoint"
        directory = root / run.path / f"checkpoints/step_{run.parameters['num_steps']}"
        read = read_checkpoint(directory)  # verifies the checksums that were kept
        assert read.provenance["procedure"] == "base"
        assert read.provenance["step"] == run.parameters["num_steps"]
    sources = [release / "multiberts-seed_0", release / "multiberts-seed_1"]
    for run, source in zip(runs[1:3], sources, strict=True):
        name = "bert.ckpt.data-00000-of-00001"
        placed = root / run.path / "checkpoints/step_2000000" / name
        assert os.path.samefile(placed, source / name)  # no disk space


def test_an_import_keeps_the_case_that_a_tokenizer_file_states(
    tmp_path: Path, weights: Callable[[str, int], Path]
) -> None:
    import tokenizers

    from multiberts.bert.checkpoint.checkpoint import read_checkpoint

    source, root = tmp_path / "seed_0", tmp_path / "root"
    shutil.copytree(weights("tf1", 0), source)
    cased = tokenizers.BertWordPieceTokenizer(str(source / "vocab.txt"), lowercase=False)
    cased.save(str(source / "tokenizer.json"))
    import_released(root=str(root), checkpoints={"base": str(source)})
    (run,) = imported_runs(root)
    assert read_checkpoint(root / run.path / "checkpoints/step_0").vocabulary.lower_case is False


def test_the_same_import_again_changes_nothing(tmp_path: Path, release: Path) -> None:
    root = tmp_path / "root"
    import_released(root=str(root), checkpoints=str(release))
    before = {path: path.stat().st_mtime_ns for path in (root / "pretrain").rglob("*")}
    marker = (root / FILE).read_bytes()
    import_released(root=str(root), checkpoints=str(release))
    assert {path: path.stat().st_mtime_ns for path in (root / "pretrain").rglob("*")} == before
    assert (root / FILE).read_bytes() == marker


def test_identity_is_what_a_checkpoint_holds_not_where_it_lies(
    tmp_path: Path, release: Path, weights: Callable[[str, int], Path]
) -> None:
    def identities(root: str, folder: Path, **options: Any) -> dict[tuple[Any, ...], str]:
        import_released(root=str(tmp_path / root), checkpoints=str(folder), **options)
        runs = imported_runs(tmp_path / root)
        return dict(zip(facts(runs), (run.path for run in runs), strict=True))

    first = identities("first", release)
    copied = identities("second", release, placing="copy")
    moved = release.rename(tmp_path / "elsewhere")
    assert first == copied == identities("third", moved, placing="symlink")
    # Imported again from its new place: the same runs.
    assert identities("first", moved) == first
    # A seed more, other weights of another seed: all else stays what it was.
    shutil.copytree(weights("tf1", 4), moved / "multiberts-seed_7")
    shutil.rmtree(moved / "multiberts-seed_1")
    shutil.copytree(weights("tf1", 5), moved / "multiberts-seed_1")
    later = identities("first", moved)
    assert later.keys() - first.keys() == {("base", 7, 2_000_000)}
    assert {key for key in first if first[key] != later[key]} == {("base", 1, 2_000_000)}
    # A copy lasts when its source goes.
    shutil.rmtree(moved)
    for path in copied.values():
        (directory,) = (tmp_path / "second" / path / "checkpoints").iterdir()
        record = json.loads((directory / "checkpoint.json").read_text())
        for name, entry in record["files"].items():
            assert sha256_of_file(directory / name) == entry["sha256"]


def test_own_runs_and_folders_by_procedure(
    tmp_path: Path, release: Path, weights: Callable[[str, int], Path]
) -> None:
    from multiberts.bert.checkpoint.checkpoint import read_checkpoint, write_checkpoint

    own = tmp_path / "own" / "pretrain" / "cda_full" / "seed_4-0123abcd"
    run = RunDirectory(own, stage="pretrain", parameters={"pretrain_seed": 4})
    read = read_checkpoint(weights("tf1", 0))
    with run:
        write_checkpoint(
            own / "checkpoints/step_40", read.parameters, read.config, read.vocabulary,
            {"procedure": "cda_full", "pretrain_seed": 4, "data_seed": 9, "step": 40},
        )  # fmt: skip
        with pytest.raises(UserError, match="seed_4-0123abcd .*not finished"):
            find_checkpoints(tmp_path / "own")
        run.finish(["checkpoints/step_40/checkpoint.json"])
    original = tmp_path / "uncased_L-12_H-768_A-12"
    shutil.copytree(weights("tf1", 6), original)
    for name in ("index", "data-00000-of-00001"):
        (original / f"bert.ckpt.{name}").rename(original / f"bert_model.ckpt.{name}")
    root = tmp_path / "root"
    import_released(
        root=str(root),
        checkpoints={
            "cda_full": str(tmp_path / "own"),
            "original": str(original),
            "base": str(release),
            "base_extra_seeds": str(release),
        },
        pretrain_seeds={"base_extra_seeds": [0]},
    )
    runs = imported_runs(root)
    assert facts(runs) == [
        ("base", 0, 1_000_000), ("base", 0, 2_000_000), ("base", 1, 2_000_000),
        ("base", 2, 2_000_000), ("base_extra_seeds", 0, 1_000_000),
        ("base_extra_seeds", 0, 2_000_000), ("cda_full", 4, 40), ("original", 0, 0),
    ]  # fmt: skip
    assert len({run.identity for run in runs}) == len(runs)
    kept = read_checkpoint(root / runs[-2].path / "checkpoints/step_40")
    assert kept.provenance["data_seed"] == 9
    unknown = read_checkpoint(root / runs[-1].path / "checkpoints/step_0")
    assert unknown.provenance["step"] is None


def _removed(name: str) -> Callable[[Path], None]:
    return lambda place: (place / name).unlink()


def _cut(name: str) -> Callable[[Path], None]:
    def cut(place: Path) -> None:
        data = (place / name).read_bytes()
        (place / name).unlink()  # not through the hard link, which others have too
        (place / name).write_bytes(data[: len(data) // 2])

    return cut


def _flipped(place: Path) -> None:
    path = place / "bert.ckpt.data-00000-of-00001"
    data = bytearray(path.read_bytes())
    path.unlink()
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("multiberts-seed_1", _removed("bert.ckpt.data-00000-of-00001"), "has no bert.ckpt.data-0000"),
        ("multiberts-seed_1", _removed("bert.ckpt.index"), r"seed_1 has no bert\.ckpt\.index"),
        ("multiberts-seed_1", _removed("vocab.txt"), r"seed_1 has no vocab\.txt"),
        ("multiberts-seed_1", _removed("bert_config.json"), r"seed_1 has no bert_config\.json"),
        ("multiberts-seed_1", _cut("bert.ckpt.data-00000-of-00001"), "truncated or damaged"),
        ("multiberts-seed_1", _flipped, "truncated or damaged"),
        (
            "multiberts-seed_1",
            lambda place: (place / "bert.ckpt.index").rename(place / "bert.ckpt.index.part"),
            r"holds bert\.ckpt\.index\.part",
        ),
        ("multiberts-seed_1", lambda place: [file.unlink() for file in place.iterdir()], "seed_1 has no"),
        (
            "models--google--multiberts-seed_2/snapshots/0a1b", _removed("model.safetensors"),
            r"bert\.ckpt\.index .*model\.safetensors",
        ),
        (
            "models--google--multiberts-seed_2/snapshots/0a1b", _cut("model.safetensors"),
            "model.safetensors",
        ),
    ],
)  # fmt: skip
def test_what_is_not_whole_is_refused_in_one_line(
    tmp_path: Path, release: Path, name: str, damage: Callable[[Path], object], message: str
) -> None:
    damage(release / name)
    root = tmp_path / "root"
    with pytest.raises(UserError, match=message) as caught:
        import_released(root=str(root), checkpoints=str(release))
    assert "\n" not in str(caught.value)
    # What was read before stays, whole; of the damaged one nothing is there.
    if root.exists():
        assert all(run.done(root) for run in imported_runs(root))
        assert not list((root / "pretrain").glob("base/seed_1-*"))
        assert not list(root.rglob("*.unfinished"))


def test_a_folder_that_says_too_little(
    tmp_path: Path, release: Path, weights: Callable[[str, int], Path]
) -> None:
    with pytest.raises(UserError, match=r"nothing .*import_released\.checkpoints"):
        import_released(root=str(tmp_path / "root"))
    with pytest.raises(UserError, match="is not a folder"):
        import_released(root=str(tmp_path / "root"), checkpoints=str(tmp_path / "none"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty holds no checkpoint"):
        find_checkpoints(tmp_path / "empty")
    for name in ("one", "two"):
        shutil.copytree(weights("tf1", 0), tmp_path / "nameless" / name)
    with pytest.raises(UserError, match="nameless.* which procedure"):
        find_checkpoints(tmp_path / "nameless")
    with pytest.raises(UserError, match="nameless.* pre-training seed"):
        find_checkpoints(tmp_path / "nameless", "base")
    shutil.copytree(weights("hugging_face", 0), release / "again" / "multiberts-seed_0")
    with pytest.raises(UserError, match=r"\(tf1\) and .*\(hugging_face\) .*base, seed 0"):
        find_checkpoints(release)


def test_predictions_become_done_runs_with_the_identity_of_what_they_hold(tmp_path: Path) -> None:
    source = tmp_path / "GLUE"
    name = "release=multiberts,pretrain_id={},n_steps=2M,lr=2e-05,ft_seed=0.tsv"
    (source / "RTE").mkdir(parents=True)
    rows = ["file\ttask\tpretrain_id\tn_steps\tlr\tft_seed\trelease"]
    for seed in (0, 1):
        table = np.random.default_rng(seed).random((6, 2))
        np.savetxt(source / "RTE" / name.format(seed), table, delimiter="\t")
        rows.append(f"RTE/{name.format(seed)}\tRTE\t{seed}\t2M\t2e-05\t0\tmultiberts")
    (source / "index.tsv").write_text("\n".join(rows) + "\n")
    (source / "RTE_dev_labels").write_text("0\n1\n1\n0\n1\n0\n")
    given = {"layout": "multiberts", "source": str(source)}
    import_released(root=str(tmp_path / "one"), predictions=given)
    import_released(root=str(tmp_path / "one"), predictions=[given])
    moved = source.rename(tmp_path / "moved")
    import_released(root=str(tmp_path / "two"), predictions={**given, "source": str(moved)})
    runs = imported_runs(tmp_path / "one")
    assert [(run.stage, run.parameters["procedure"], run.parameters["pretrain_seed"]) for run in runs] == [
        ("import_predictions", "base", 0), ("import_predictions", "base", 1),
    ]  # fmt: skip
    assert runs == imported_runs(tmp_path / "two")
    assert len({run.identity for run in runs}) == 2
    assert fingerprint(tmp_path / "one" / runs[0].path) == fingerprint(
        tmp_path / "two" / runs[0].path
    )
    shutil.rmtree(tmp_path / "two" / runs[0].path)
    with pytest.raises(UserError, match=rf"{runs[0].path} .*gone \(1"):
        imported_runs(tmp_path / "two")
    with pytest.raises(UserError, match="expected layout, source"):
        import_released(root=str(tmp_path / "one"), predictions={"source": "x"})


MODEL = {
    "num_hidden_layers": 1,
    "hidden_size": 8,
    "num_attention_heads": 1,
    "intermediate_size": 16,
    "max_position_embeddings": 32,
}


def plan(folder: Path, imported: list[PlannedRun], **changes: Any) -> list[PlannedRun]:
    """The plan of one task, for which there is data."""
    for name in ("train.tsv", "dev.tsv", "text.txt"):
        (folder / name).write_text("One.\n")
    arguments: dict[str, Any] = {
        "corpora": {}, "procedures": {}, "pretrain_seeds": [],
        "tasks": {"facts": {"data_dir": str(folder)}}, "learning_rates": [1e-3], "paper": {},
        "finetune_steps": {"facts": {"base": [10, 20], "original": None}},
    }  # fmt: skip
    return make_plan(Experiment(**{**arguments, **changes}), imported=imported)


def test_plans_go_on_from_imported_runs(tmp_path: Path) -> None:
    base = [checkpoint_run("base", 0, step, f"content {step}", "here") for step in (10, 15, 20)]
    original = checkpoint_run("original", 0, None, "other content", "there")
    full = checkpoint_run("cda_full", 0, 20, "third content", "there")
    predicted = predictions_run("finetune/facts/run", {"task": "facts"}, "answers")
    runs = plan(tmp_path, [*base, original, full, predicted])
    finetuned = [run for run in runs if run.stage == "finetune"]
    # Steps by procedure; who is not named does without the task.
    assert [run.parents[0] for run in finetuned] == [base[0], base[2], original]
    start = finetuned[2].arguments("root")["checkpoint"]
    assert start == f"root/{original.path}/checkpoints/step_0"
    for name in ("scores", "paper"):
        (run,) = [run for run in runs if run.name == name]
        assert set(run.parents) == {*finetuned, predicted}
    # Another step imported: what was fine-tuned keeps its place.
    fewer = [run.path for run in plan(tmp_path, [base[2], original]) if run.stage == "finetune"]
    assert fewer == [finetuned[1].path, finetuned[2].path]


def test_procedures_start_from_imported_checkpoints(tmp_path: Path) -> None:
    base = [checkpoint_run("base", seed, step, f"{seed} {step}", "here")
            for seed in (0, 1) for step in (20, 10)]  # fmt: skip
    changes: dict[str, Any] = {
        "corpora": {"swapped": {"sources": [str(tmp_path / "text.txt")], "source_format": "sentences"}},
        "procedures": {
            "cda_incr": {
                "model": MODEL, "num_steps": 5, "checkpoint_steps": [], "initial_checkpoint": "base",
            }
        },
        "pretrain_seeds": [0, 1],
    }  # fmt: skip
    runs = plan(tmp_path, base, **changes)
    for run in runs:
        if run.stage == "pretrain":
            last = base[2 * run.parameters["pretrain_seed"]]
            expected = f"root/{last.path}/checkpoints/step_20"
            assert run.arguments("root")["initial_checkpoint"] == expected
    with pytest.raises(UserError, match="'base', .*no seed 2"):
        plan(tmp_path, base, **{**changes, "pretrain_seeds": [2]})
    changes["procedures"] = {"base": {"model": MODEL, "num_steps": 5, "checkpoint_steps": []}}
    with pytest.raises(UserError, match="seed 0 of base was imported"):
        plan(tmp_path, base, **changes)


def test_checkpoints_of_the_hub_are_imported_and_planned_from(
    tmp_path: Path, release: Path
) -> None:
    pytest.importorskip("huggingface_hub")
    (tmp_path / "text.txt").write_text("One. Two.\n")
    name = "google/multiberts-seed_2"
    folder = next(release.glob("models--google*/snapshots/*"))
    hub, home, root = (
        FakeHub(tmp_path, {f"models/{name}": {"1" * 40: folder}}),
        tmp_path / "home",
        tmp_path / "root",
    )
    experiment = [
        f"launch.root = {str(root)!r}",
        "launch.corpora = ['text']",
        f"text/prepare.sources = [{str(tmp_path / 'text.txt')!r}]",
        "text/prepare.source_format = 'sentences'",
        "launch.procedures = ['more']",
        "launch.pretrain_seeds = [0]",
        f"more/pretrain.initial_checkpoint = 'hub:{name}'",
        "pretrain.model = {}",
        "pretrain.num_steps = 5",
        "launch.tasks = []",
    ]
    with hub.serve() as endpoint:
        done = hub_command(endpoint, home, "launch", "import", f"--root={root}",
                           f"--gin_param=import_released.checkpoints = 'hub:{name}'")  # fmt: skip
        assert done.returncode == 0, done.stderr
        [run] = imported_runs(root)
        assert (run.parameters["procedure"], run.parameters["pretrain_seed"]) == ("base", 2)
        bindings = [f"--gin_param={binding}" for binding in experiment]
        planned = hub_command(endpoint, home, "launch", "plan", *bindings)
        assert planned.returncode == 0, planned.stderr
        assert "more" in planned.stdout
        (tmp_path / "text.txt").write_text("One. Three.\n")
        missing = [binding.replace(name, "google/nothing") for binding in bindings]
        refused = hub_command(endpoint, home, "launch", "plan", *missing)
    assert refused.returncode == 2 and "no such repository" in refused.stderr


def test_paths_in_the_folder_of_data(tmp_path: Path, release: Path) -> None:
    root = tmp_path / "root"
    with pytest.raises(UserError, match="'data:multiberts' .*launch"):
        import_released(root=str(root), checkpoints="data:multiberts")
    import_released(root=str(root), checkpoints="data:multiberts", data=str(release.parent))
    assert len(imported_runs(root)) == 4


def test_a_plan_without_imports_has_none(tmp_path: Path) -> None:
    assert imported_runs(tmp_path) == []
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_text("{")
    with pytest.raises(UserError, match=r"imported\.json is not whole JSON"):
        imported_runs(tmp_path)


def test_an_imported_run_stays_below_the_root(
    tmp_path: Path, weights: Callable[[str, int], Path]
) -> None:
    checkpoint = tmp_path / "checkpoints" / "multiberts-seed_0"
    shutil.copytree(weights("hugging_face", 0), checkpoint)
    before = set(tmp_path.rglob("*"))
    with pytest.raises(UserError, match="outside the experiment's root"):
        import_released(root=str(tmp_path / "a" / "b"), checkpoints={"../../../x": str(checkpoint)})
    added = {path.relative_to(tmp_path).parts[0] for path in set(tmp_path.rglob("*")) - before}
    assert added <= {"a"} and not list((tmp_path / "a" / "b").glob("pretrain/*"))


def test_imported_predictions_stay_below_the_root(tmp_path: Path) -> None:
    from multiberts.evaluate.imports.imported_runs import ImportedRun, write_imported

    run = ImportedRun("../../outside", {}, (tmp_path / "file",), lambda: ())
    with pytest.raises(UserError, match=r"has a run named '\.\./\.\./outside'.*rename it"):
        write_imported(tmp_path / "a" / "b", "squad", run)
    assert list(tmp_path.iterdir()) == []
