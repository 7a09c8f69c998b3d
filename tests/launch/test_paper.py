"""The paper from a folder of checkpoints, at toy size; and the whole plan of it, which nobody runs here."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from multiberts.bert.vocabulary import Vocabulary
from multiberts.tests.launch.paper_inputs import write_checkpoints, write_data
from multiberts.tests.tools import warm

# Of the report, at the size of the smoke test as at full size; and for each GLUE-like task a curve.
TABLES = {
    "scores", "winogender_paired", "winogender_unpaired", "winogender_checkpoints",
    "winogender_groups", "steps", "original", "agreement", "family_steps", "components",
    "learning_rates",
}  # fmt: skip
FIGURES = {
    "figure_scores", "figure_parts_dev", "figure_bias_by_seed", "figure_bias_noise",
    "figure_winogender_groups", "figure_bootstrap_paired", "figure_bootstrap_unpaired",
    "figure_bootstrap_steps", "figure_bootstrap_checkpoints", "figure_steps", "figure_sources",
    "figure_occupations", "figure_training_facts-dev", "figure_training_questions-dev",
    "figure_agreement", "figure_family_steps", "figure_variance", "figure_power",
}  # fmt: skip

ROOT = Path(__file__).resolve().parents[2]
BASE = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072
}  # fmt: skip


def launch(*arguments: str) -> str:
    result = warm.run(["launch", *arguments])
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Tiny models that know nothing, with the vocabulary of the world, as others publish theirs."""
    from multiberts.bert.checkpoint.checkpoint import PROVENANCE, write_checkpoint
    from multiberts.bert.model.configuration import BertConfig
    from multiberts.bert.model.initialization import initial_parameters
    from multiberts.pretrain.corpus.preparation import prepare
    from multiberts.pretrain.world.synthetic_world import make_world

    folder = tmp_path_factory.mktemp("release")
    make_world(run_dir=str(folder / "world"), world_seed=0, num_documents=100)
    prepare(
        run_dir=str(folder / "corpus"), sources=[str(folder / "world" / "corpus.txt")],
        source_format="sentences", vocabulary_size=500, sequence_length=32,
    )  # fmt: skip
    vocabulary = folder / "corpus" / "vocab.txt"
    config = BertConfig(
        vocab_size=len(vocabulary.read_text().splitlines()), hidden_size=16, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=32, max_position_embeddings=32,
        initializer_range=0.3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    places = {
        "base": [*(f"multiberts-seed_{seed}" for seed in range(3)),
                 *(f"multiberts-seed_{seed}-step_1000k" for seed in range(2))],
        "cda_incr": [f"seed_{seed}/step_2050k" for seed in range(3)],
        "cda_full": [f"multiberts-seed_{seed}" for seed in range(3)],
        "original": ["uncased"],
    }  # fmt: skip
    number = 0
    for procedure, names in places.items():
        for name in names:
            number += 1
            place = folder / procedure / name
            layout = "hugging_face" if procedure == "cda_full" else "tf1"
            parameters = initial_parameters(config, number)
            write_checkpoint(
                place, parameters, config, Vocabulary.open(vocabulary), {}, layout=layout
            )
            (place / PROVENANCE).unlink()
    folders = {procedure: str(folder / procedure) for procedure in places}
    return {**folders, "base_extra_seeds": folders["base"]}


@pytest.mark.slow
def test_every_table_and_figure_from_checkpoints_of_others(
    tmp_path: Path, checkpoints: dict[str, str]
) -> None:
    root = tmp_path / "paper"
    run = ["run", "--gin_file=configs/launch/paper_smoke.gin", f"--root={root}",
           f"--checkpoints={json.dumps(checkpoints)}"]  # fmt: skip
    launch(*run)
    report = root / "paper" / "report"
    index = (report / "index.md").read_text()
    left_out = index.partition("## Left out")[2]
    # Toy size has no HANS.
    assert re.findall(r"^- (\S+):", left_out, flags=re.MULTILINE) == ["figure_hans_by_seed"]
    made = set(re.findall(r"^## (\S+)$", index, flags=re.MULTILINE))
    assert made == TABLES | FIGURES
    for name in TABLES:
        assert all((report / "tables" / f"{name}.{end}").is_file() for end in ("md", "tex", "csv"))
    for name in FIGURES:
        assert (report / "figures" / f"{name}.svg").stat().st_size > 5000
    seeds_and_runs = {
        (row["Metric"], row["Procedure"]): (int(row["Seeds"]), int(row["Runs"]))
        for row in csv.DictReader((report / "tables" / "winogender_groups.csv").open())
    }
    assert {key: value for key, value in seeds_and_runs.items() if key[0] == "accuracy"} == {
        ("accuracy", "base"): (3, 6), ("accuracy", "base_extra_seeds"): (2, 6),
        ("accuracy", "cda_incr"): (3, 6), ("accuracy", "cda_full"): (3, 6),
    }  # fmt: skip
    # Appendix E: the early and the last step against the original, each task by each measure.
    against = [
        (row["Set"], row["Experiment"], row["Experiment seeds"])
        for row in csv.DictReader((report / "tables" / "original.csv").open())
    ]
    arms = [("base, 1M steps", "2"), ("base", "3")]
    measures = {"facts/dev": 1, "questions/dev": 2}
    assert against == [
        (name, *arm) for name, number in measures.items() for _ in range(number) for arm in arms
    ]
    # All is done: nothing runs again.
    before = {path: path.stat().st_mtime_ns for path in root.rglob("DONE")}
    launch(*run)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("DONE")} == before


def _counts(output: str) -> dict[str, int]:
    found = re.findall(r"^  ([a-z-]+) +([\d,]+) +[\d,]+ +[\d.,]+ ", output, flags=re.MULTILINE)
    return {stage: int(number.replace(",", "")) for stage, number in found}


def plan_of_paper(folder: Path, checkpoints: dict[str, str], *more: str) -> str:
    data = write_data(folder / "data")
    return launch(
        "plan", "--gin_file=configs/launch/paper.gin", f"--root={folder / 'root'}",
        f"--checkpoints={json.dumps(checkpoints)}", f"--gin_param=DATA = {str(data)!r}", *more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """All checkpoints of the paper, of BERT base in their configuration."""
    folder, million = tmp_path_factory.mktemp("whole"), 1_000_000
    last = {"base": 2 * million, "cda_incr": 2_050_000, "cda_full": 2 * million}
    seeds = [(name, seed, step) for name, step in last.items() for seed in range(25)]
    early = [("base", seed, million) for seed in range(5)]
    checkpoints = write_checkpoints(folder, [*seeds, *early, ("original", None, None)], BASE)
    return {**checkpoints, "base_extra_seeds": checkpoints["base"]}


@pytest.fixture(scope="module")
def whole_plan(tmp_path_factory: pytest.TempPathFactory, release: dict[str, str]) -> str:
    """The plan of all of them on V100, which takes seconds to make."""
    return plan_of_paper(tmp_path_factory.mktemp("plan"), release, "--device=V100")


@pytest.mark.slow
def test_the_whole_paper_has_as_many_runs_as_its_sections_say(whole_plan: str) -> None:
    counts = _counts(whole_plan)
    # 25 seeds, the original, and five seeds at the early step.
    encoders = 25 + 1 + 5
    glue, squad = 8 * encoders * 4 * 5, 2 * encoders * 5
    assert counts["finetune"] == glue + squad + 3 * 25 * 5 + 5 * 25
    for page in ("configs/launch/paper.gin", "docs/paper.md"):
        assert f"{counts['finetune']:,} fine-tuning runs" in (ROOT / page).read_text()
    assert counts["paper"] == counts["evaluate"] == 1


@pytest.mark.slow
def test_the_papers_costs_stand_beside_those_of_the_plan(tmp_path: Path, whole_plan: str) -> None:
    from multiberts.bert.model.configuration import BertConfig, num_parameters
    from multiberts.bert.model.operations import model_flops_per_step
    from multiberts.launch.estimate.prices import load_prices

    [one] = write_checkpoints(tmp_path / "one", [("base", 0, 2_000_000)], BASE).values()

    def hours(output: str) -> float:
        [number] = re.findall(r"([\d,.]+) device-hours, ", output)
        return float(number.replace(",", ""))

    def hours_of_one(procedure: str, device: str) -> float:
        return hours(plan_of_paper(tmp_path, {procedure: one}, f"--device={device}"))

    finetuned = {device: hours_of_one("base", device) for device in ("V100", "A100", "H200")}
    config, host = BertConfig(vocab_size=30522), load_prices().device("v2-8")
    size = 165 * 4 * num_parameters(config)
    seed = 2e6 * model_flops_per_step(config, 256, 512, 80) / host.flops_per_second() / 3600
    page = (ROOT / "docs" / "paper.md").read_text()
    for words in (
        "{V100:.0f} hours on one V100, {A100:.0f} on one A100, {H200:.0f} on one H200".format(
            **finetuned
        ),
        f"{hours_of_one('cda_incr', 'V100'):.2f} hours on one V100",
        f"{hours(whole_plan):,.0f} hours on one V100",
        f"{seed:.0f} hours on a v2-8 of four chips, so {seed / 4:.0f} on 16: {4 * seed:,.0f} chip-hours",
        f"{size / 1e9:.1f} GB, which are {size / 2**30:.1f} GiB",
    ):
        assert words in page


def test_with_the_base_alone_the_other_procedures_tasks_are_left_out(tmp_path: Path) -> None:
    checkpoints = write_checkpoints(
        tmp_path / "release", [("base", seed, 2_000_000) for seed in range(2)]
    )
    output = plan_of_paper(tmp_path, checkpoints)
    assert _counts(output)["finetune"] == 8 * 2 * 4 * 5 + 2 * 2 * 5 + 2 * 5
    said = "note: left out, as no checkpoint fits launch.finetune_steps: coreference_extra"
    assert said in output


def test_from_the_published_predictions_nothing_is_trained(tmp_path: Path) -> None:
    source = write_data(tmp_path / "GLUE")
    predictions = [{"layout": "multiberts", "source": str(source)}]
    output = launch(
        "plan", "--gin_file=configs/launch/paper.gin", f"--root={tmp_path / 'root'}",
        f"--predictions={json.dumps(predictions)}", "--checkpoints=[]", f"--gin_param=DATA = {str(source)!r}",
    )  # fmt: skip
    assert _counts(output) == {"import": 1, "evaluate": 1, "paper": 1}
