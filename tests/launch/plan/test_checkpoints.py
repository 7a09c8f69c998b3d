"""Checkpoints that exist: found in folders, called by procedure, seed and step, and planned from."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multiberts.bert.vocabulary import Vocabulary
from multiberts.launch.markers.planned import facts_of
from multiberts.launch.plan.checkpoints import Start, find_checkpoints, find_starts
from multiberts.launch.plan.experiment import Experiment, make_plan
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.tests.launch.launchers import MODEL, gin_lines
from multiberts.tests.tools.fake_hub import FakeHub, hub_command

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c"]
SEED_2 = "models--google--multiberts-seed_2/snapshots/0a1b"


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
        (SEED_2, "hugging_face", 3),
    ):
        shutil.copytree(weights(layout, seed), folder / name)
    return folder


def facts(starts: list[Start]) -> list[tuple[Any, ...]]:
    return [(start.procedure, start.pretrain_seed, start.step) for start in starts]


def test_a_folder_of_released_checkpoints(release: Path) -> None:
    starts = find_starts([str(release)])
    assert facts(starts) == [
        ("base", 0, 1_000_000), ("base", 0, 2_000_000), ("base", 1, 2_000_000),
        ("base", 2, 2_000_000),
    ]  # fmt: skip
    assert starts[0].name == "base-seed_0-step_1000000"
    # The release's records say `multiberts`.
    assert all(start.renamed == {"procedure": "base"} for start in starts)
    assert starts == find_starts({"base": str(release)}) == find_starts({"base": [str(release)]})


def test_a_procedure_may_have_a_part_of_the_seeds_under_another_name(
    tmp_path: Path, release: Path, weights: Callable[[str, int], Path], capsys
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
    checkpoints = {"cda_full": str(tmp_path / "own"), "original": str(original)}
    checkpoints |= {"base": str(release), "base_extra_seeds": str(release)}
    starts = find_starts(checkpoints, {"base_extra_seeds": [0]})
    assert facts(starts) == [
        ("base", 0, 1_000_000), ("base", 0, 2_000_000), ("base", 1, 2_000_000),
        ("base", 2, 2_000_000), ("base_extra_seeds", 0, 1_000_000),
        ("base_extra_seeds", 0, 2_000_000), ("cda_full", 4, 40), ("original", 0, None),
    ]  # fmt: skip
    assert starts[-2].renamed == {}
    assert starts[-1].renamed == {"procedure": "original", "pretrain_seed": 0}
    assert "does not say its pre-training seed; it counts as seed 0" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"seed 7 of base_extra_seeds, .* only 0, 1, 2; correct"):
        find_starts(checkpoints, {"base_extra_seeds": [0, 7]})


def test_what_would_be_mixed_or_ignored_is_refused(
    tmp_path: Path, release: Path, make_checkpoint: Callable[..., Path], capsys
) -> None:
    shutil.move(make_checkpoint(), release / "seed_7")  # records the procedure `base`
    with pytest.raises(UserError, match=r"\['a'\] has checkpoints of .* which would be one"):
        find_starts({"a": str(release)})
    shutil.rmtree(release / "seed_7")
    with pytest.raises(UserError, match="empty path or name"):
        find_starts([""])
    base = {"base": str(release)}
    with pytest.raises(UserError, match=r"by procedure: \{'base': \[0\]\}"):
        plan(tmp_path, base, pretrain_seeds=[0])
    with pytest.raises(UserError, match="launch.tasks is empty; name a task"):
        plan(tmp_path, base, tasks={}, finetune_steps="last")
    capsys.readouterr()
    plan(tmp_path, base, pretrain_seeds={"bas": [0]}, finetune_steps={"facts": {"base": "last"}})
    assert "note: no checkpoints of bas, which launch.* names" in capsys.readouterr().out
    plan(tmp_path, base, finetune_steps={"facts": {"bse": "last"}})
    assert "note: launch.finetune_steps leaves out base in every task" in capsys.readouterr().out


def _removed(name: str) -> Callable[[Path], None]:
    return lambda place: (place / name).unlink()


def _cut(name: str) -> Callable[[Path], None]:
    def cut(place: Path) -> None:
        data = (place / name).read_bytes()
        (place / name).unlink()  # not through the hard link, which others have too
        (place / name).write_bytes(data[: len(data) // 2])

    return cut


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        *(
            ("multiberts-seed_1", _removed(name), f"seed_1 has no {name}")
            for name in ("bert.ckpt.data-00000-of-00001", "bert.ckpt.index", "vocab.txt", "bert_config.json")
        ),
        ("multiberts-seed_1", lambda place: (place / "bert.ckpt.index").rename(
            place / "bert.ckpt.index.part"), r"holds bert\.ckpt\.index\.part"),
        ("multiberts-seed_1", lambda place: [file.unlink() for file in place.iterdir()], "seed_1 has no"),
        (SEED_2, _removed("model.safetensors"), r"bert\.ckpt\.index .*model\.safetensors"),
        (SEED_2, _cut("model.safetensors"), "model.safetensors"),
    ],
)  # fmt: skip
def test_what_is_not_whole_is_refused_in_one_line(
    release: Path, name: str, damage: Callable[[Path], object], message: str
) -> None:
    damage(release / name)
    with pytest.raises(UserError, match=message) as caught:
        find_starts([str(release)])
    assert "\n" not in str(caught.value)


def test_a_folder_that_says_too_little(
    tmp_path: Path, release: Path, weights: Callable[[str, int], Path]
) -> None:
    shutil.copytree(weights("tf1", 0), tmp_path / "model_a")
    [start] = find_starts([str(tmp_path / "model_a")])
    assert start == Start("model_a", str(tmp_path / "model_a"), None, None, None)
    with pytest.raises(UserError, match="none is not a folder"):
        find_starts([str(tmp_path / "none")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty holds no checkpoint"):
        find_checkpoints(tmp_path / "empty")
    for name in ("one", "two"):
        shutil.copytree(weights("tf1", 0), tmp_path / "nameless" / name)
    with pytest.raises(UserError, match="nameless.* which procedure"):
        find_starts([str(tmp_path / "nameless")])
    with pytest.raises(UserError, match="nameless.* pre-training seed"):
        find_starts({"base": str(tmp_path / "nameless")})
    shutil.copytree(weights("hugging_face", 0), release / "again" / "multiberts-seed_0")
    with pytest.raises(
        UserError, match=r"seed_0 and .*seed_0, both base-seed_0-step_2000000; leave one"
    ):
        find_starts([str(release)])


def plan(folder: Path, checkpoints: Any, **changes: Any) -> list[PlannedRun]:
    """The plan of one task, for which there is data."""
    for name in ("train.tsv", "dev.tsv", "text.txt"):
        (folder / name).write_text("One.\n")
    arguments: dict[str, Any] = {
        "checkpoints": checkpoints, "tasks": {"facts": {"data_dir": str(folder)}},
        "learning_rates": [1e-3], "paper": {},
        "finetune_steps": {"facts": {"base": [1_000_000, 2_000_000], "original": "last"}},
    }  # fmt: skip
    return make_plan(Experiment(**{**arguments, **changes}))


def finetuning(runs: list[PlannedRun]) -> list[PlannedRun]:
    return [run for run in runs if run.stage == "finetune"]


def test_plans_start_from_checkpoints(
    tmp_path: Path, release: Path, weights: Callable[[str, int], Path]
) -> None:
    for name in ("original", "cda_full"):
        shutil.copytree(weights("tf1", 7), tmp_path / name)
    checkpoints = {"base": str(release)} | {
        name: str(tmp_path / name) for name in ("original", "cda_full")
    }
    runs = plan(tmp_path, checkpoints)
    finetuned = finetuning(runs)
    # Steps by procedure; who is not named does without the task.
    assert [tuple(run.facts.values()) for run in finetuned] == [
        ("base", 0, 1_000_000), ("base", 0, 2_000_000), ("base", 1, 2_000_000),
        ("base", 2, 2_000_000), ("original", 0, 0),
    ]  # fmt: skip
    assert finetuned[-1].path.startswith(
        "finetune/facts/original-seed_0-step_0/lr_0.001-ft_seed_0-"
    )
    assert finetuned[-1].arguments("root")["checkpoint"] == str(tmp_path / "original")
    assert facts_of(finetuned[1])["checkpoint_step"] == 2_000_000
    for name in ("scores", "paper"):
        (run,) = [run for run in runs if run.name == name]
        assert set(run.parents) == set(finetuned)
    # Below the folder of data.
    below = {**checkpoints, "base": "data:multiberts"}
    with pytest.raises(UserError, match="'data:multiberts' .*launch.data is not set"):
        plan(tmp_path, below)
    in_data = finetuning(plan(tmp_path, below, data=str(release.parent)))
    assert [run.path for run in in_data] == [run.path for run in finetuned]
    # A subset of the checkpoints, and all of them at another place: runs keep their paths.
    moved = shutil.copytree(release, tmp_path / "moved" / "elsewhere")
    fewer = finetuning(plan(tmp_path, {"base": str(moved)}, pretrain_seeds={"base": [1, 2]}))
    assert [run.path for run in fewer] == [run.path for run in finetuned[2:4]]
    shutil.copytree(weights("tf1", 9), moved / "multiberts-seed_1", dirs_exist_ok=True)
    changed = finetuning(plan(tmp_path, {"base": str(moved)}, pretrain_seeds={"base": [1, 2]}))
    assert changed[0].path != fewer[0].path and changed[1].path == fewer[1].path


def test_the_last_step_is_that_of_the_procedure(
    tmp_path: Path, make_checkpoint: Callable[..., Path]
) -> None:
    made = make_checkpoint()
    for procedure, seed, step in itertools.product(("news", "books"), (0, 1), (5, 10)):
        run = tmp_path / f"corpora/{procedure}-{seed}/checkpoints/step_{step}"
        shutil.copytree(made, run)
        record = json.loads((run / "checkpoint.json").read_text())
        named = {"procedure": procedure, "pretrain_seed": seed, "step": step}
        (run / "checkpoint.json").write_text(json.dumps(record | named))

    def names(steps: Any) -> list[str]:
        runs = plan(tmp_path, [str(tmp_path / "corpora")], finetune_steps=steps)
        return [run.path.split("/")[2] for run in finetuning(runs)]

    last = [f"{name}-seed_{seed}-step_10" for name in ("books", "news") for seed in (0, 1)]
    assert names("last") == names([10]) == last and len(names("all")) == 8
    assert names([5])[0] == "books-seed_0-step_5"
    shutil.rmtree(tmp_path / "corpora/news-1/checkpoints/step_10")
    with pytest.raises(
        UserError, match="news, seed 1 has no checkpoint of step 10, only of 5; finish"
    ):
        names("last")


def test_procedures_start_from_checkpoints(tmp_path: Path, release: Path) -> None:
    changes: dict[str, Any] = {
        "corpora": {"swapped": {"sources": [str(tmp_path / "text.txt")], "source_format": "sentences"}},
        "procedures": {
            "cda_incr": {
                "model": MODEL, "num_steps": 5, "checkpoint_steps": [], "initial_checkpoint": "base",
            }
        },
        "pretrain_seeds": [0, 1],
    }  # fmt: skip
    base = {"base": str(release)}
    for run in plan(tmp_path, base, **changes):
        if run.stage == "pretrain":
            name = f"multiberts-seed_{run.parameters['pretrain_seed']}"
            assert run.arguments("root")["initial_checkpoint"] == str(release / name)
    with pytest.raises(UserError, match="'base', .*no seed 3"):
        plan(tmp_path, base, **{**changes, "pretrain_seeds": [3]})
    changes["procedures"] = {"base": {"model": MODEL, "num_steps": 5, "checkpoint_steps": []}}
    with pytest.raises(UserError, match="seed 0 of base is among launch.checkpoints"):
        plan(tmp_path, base, **changes)


def test_checkpoints_of_the_hub_are_planned_from(tmp_path: Path, release: Path) -> None:
    pytest.importorskip("huggingface_hub")
    for file in ("text.txt", "train.tsv", "dev.tsv"):
        (tmp_path / file).write_text("One. Two.\n")
    name = "google/multiberts-seed_2"
    folder = next(release.glob("models--google*/snapshots/*"))
    hub = FakeHub(tmp_path, {f"models/{name}": {"1" * 40: folder}})
    home, root = tmp_path / "home", tmp_path / "root"
    experiment = gin_lines(
        launch={
            "root": str(root), "corpora": ["text"], "procedures": ["more"], "pretrain_seeds": [0],
            "tasks": [],
        },
        prepare={"sources": [str(tmp_path / "text.txt")], "source_format": "sentences"},
        pretrain={"model": {}, "num_steps": 5, "initial_checkpoint": f"hub:{name}"},
    )  # fmt: skip
    with hub.serve() as endpoint:
        bindings = [f"--gin_param={binding}" for binding in experiment.splitlines()]
        planned = hub_command(endpoint, home, "launch", "plan", *bindings)
        assert planned.returncode == 0, planned.stderr
        assert "more" in planned.stdout
        tuned = hub_command(endpoint, home, "launch", "plan", f"--root={root}", "--tasks=RTE",
                            f"--checkpoints=hub:{name}",
                            f"--gin_param=finetune.data_dir = {str(tmp_path)!r}")  # fmt: skip
        assert tuned.returncode == 0, tuned.stderr
        assert "finetune/RTE: 1 run" in tuned.stdout or "finetune/RTE/base-seed_2" in tuned.stdout
        (tmp_path / "text.txt").write_text("One. Three.\n")
        missing = [binding.replace(name, "google/nothing") for binding in bindings]
        refused = hub_command(endpoint, home, "launch", "plan", *missing)
    assert refused.returncode == 2 and "no such repository" in refused.stderr


def test_long_names_fit_those_of_files_and_stay_apart(
    tmp_path: Path, weights: Callable[[str, int], Path]
) -> None:
    """A file name has 255 bytes; outputs are first written with an ending of their own."""
    paths = []
    for name in ("c" * 240, "c" * 239 + "d", "é" * 110, "short"):
        folder = shutil.copytree(weights("hugging_face", 0), tmp_path / name)
        found = finetuning(plan(tmp_path, [str(folder)], finetune_steps="all"))
        paths += [run.path for run in found]
        for part in "/".join(paths).split("/"):
            assert len(part.encode()) <= 200
    assert len(set(paths)) == len(paths) == 4
    assert paths[-1].split("/")[2] == "short"
    by_name = {"p" * 230: str(tmp_path / "short")}
    (run,) = finetuning(plan(tmp_path, by_name, finetune_steps="all"))
    assert run.facts["procedure"] == "p" * 230
    assert max(map(len, run.path.split("/"))) <= 200
