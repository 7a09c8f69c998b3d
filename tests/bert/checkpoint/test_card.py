"""Model cards: every fact has a source, and what has none is said to be unknown."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from multiberts.bert.checkpoint.card import facts_of_run, model_card, read_scores
from multiberts.bert.model.configuration import BertConfig
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.files import write_atomically
from multiberts.runs.identity import opened

CONFIG = BertConfig(
    vocab_size=500, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=256,
)  # fmt: skip
NOTHING_KNOWN: dict[str, Any] = dict.fromkeys(("procedure", "pretrain_seed", "data_seed", "step"))
PROVENANCE = {"procedure": "base", "pretrain_seed": 0, "data_seed": 7, "step": 2000}
RUN = {
    "training": {"batch_size": 256, "learning_rate": 1e-4, "procedure": "base", "bf16": None},
    "corpus": {
        "sequence_length": 128,
        "counts": {"tokens": 471_293},
        "sources": [{"file": "corpus.txt", "sha256": "fa56"}, {"file": "more.txt"}],
        "sha256": {"tokens.npy": "24ea"},
    },
}


def _card(provenance: dict[str, Any], **more: Any) -> str:
    given = {"num_parameters": 145_398, "has_heads": True, "layout": "hugging_face", **more}
    return model_card(CONFIG, provenance, **given)


def _section(card: str, title: str) -> str:
    return card.split(f"## {title}\n")[1].split("\n## ")[0].strip()


def test_unknown_is_said() -> None:
    card = _card(NOTHING_KNOWN)
    for name in ("procedure", "`pretrain_seed` (initialisation, dropout)", "step"):
        assert any(
            line.startswith(f"| {name}") and line.endswith("| unknown |")
            for line in card.splitlines()
        ), name
    assert _section(card, "Data").startswith("Unknown: ")
    assert _section(card, "Training").startswith("Unknown: ")
    assert _section(card, "Evaluation").startswith("None was given")
    # The release's facts belong to the release.
    assert "Wikipedia" not in card and "license" not in card and "None |" not in card


def test_the_card_says_whether_the_model_is_cased() -> None:
    for layout in ("tf1", "hugging_face"):
        for lower_case in (True, False):
            use = _section(_card(NOTHING_KNOWN, layout=layout, lower_case=lower_case), "Use")
            assert ("Text is lower-cased." in use) is lower_case
            assert ("Text keeps its capitals and accents." in use) is not lower_case


def test_facts_of_the_run_are_told() -> None:
    scores = [
        {"task": "RTE", "evaluation_set": "dev", "metric": "accuracy", "learning_rate": "3e-05",
         "runs": 5, "mean": 0.61234, "lowest": 0.5, "highest": 0.7},
    ]  # fmt: skip
    card = _card({**PROVENANCE, **RUN}, scores=scores)
    assert "# base: seed 0, step 2,000" in card and "145,398 parameters" in card
    assert "| tokens | 471,293 |" in _section(card, "Data")
    assert "- `corpus.txt` (SHA-256 `fa56`)\n- `more.txt`" in _section(card, "Data")
    assert "| batch_size | 256 |" in _section(card, "Training")
    assert "| bf16 | none |" in _section(card, "Training")
    assert "| RTE | dev | accuracy | 3e-05 | 5 | 0.6123 | 0.5000 | 0.7000 |" in _section(
        card, "Evaluation"
    )


def test_held_out_evaluation_of_the_run_is_told() -> None:
    measured = {"masked_lm_accuracy": 0.25, "next_sentence_loss": 0.5}
    told = _section(_card({**PROVENANCE, "evaluation": measured}), "Evaluation")
    assert "| masked_lm_accuracy | 0.25 |" in told and "None was given" not in told


def test_facts_of_the_release_are_told_of_the_release_alone() -> None:
    released = {**NOTHING_KNOWN, "procedure": "multiberts", "pretrain_seed": 4, "step": 20_000}
    card = _card(released)
    assert "English Wikipedia and BooksCorpus" in _section(card, "Data")
    assert "2,000,000 steps of 256 sequences" in _section(card, "Training")
    assert "Wikipedia" not in _card({**released, **RUN})


@pytest.mark.parametrize("layout", ["hugging_face", "tf1"])
@pytest.mark.parametrize("procedure", [None, "base", "yes", 'odd: "name"', "multiberts"])
def test_front_matter_is_what_the_hub_reads(layout: str, procedure: str | None) -> None:
    """As read by the hub's own library; `yes` unquoted would be a truth value in YAML."""
    from huggingface_hub import ModelCard

    data = ModelCard(_card({**PROVENANCE, "procedure": procedure}, layout=layout)).data.to_dict()
    assert data["pipeline_tag"] == "fill-mask"
    assert data["library_name"] == ("transformers" if layout == "hugging_face" else "tensorflow")
    tags = (
        ["bert", "pretrain_seed_0"] if procedure is None else ["bert", procedure, "pretrain_seed_0"]
    )
    assert data["tags"] == tags
    assert data.get("license") == ("apache-2.0" if procedure == "multiberts" else None)


def test_the_form_of_gelu_is_told() -> None:
    assert "| activation | GELU, tanh form |" in _card(PROVENANCE)
    exact = dataclasses.replace(CONFIG, hidden_act="gelu_exact")
    card = model_card(exact, PROVENANCE, num_parameters=1, has_heads=True, layout="tf1")
    assert "| activation | GELU, exact form |" in card and "tanh form alone" in card
    assert "refuses `gelu_exact`" in _section(card, "Use")


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A finished corpus and a pre-training run on it, as the stages leave them."""
    corpus = RunDirectory(tmp_path / "corpus", stage="prepare", parameters={})
    with corpus:
        write_atomically(corpus.path / "corpus.json", json.dumps(RUN["corpus"]))
        corpus.finish(["corpus.json"])
    first = tmp_path / "first_checkpoint"
    first.write_text("weights")
    run = RunDirectory(
        tmp_path / "run",
        stage="pretrain",
        parameters={"batch_size": 256, "model": {"hidden_size": 64}, "procedure": "cda_incr"},
        inputs={"corpus": corpus.path, "initial_checkpoint": first},
    )
    with run:
        (run.path / "checkpoints/step_20").mkdir(parents=True)
    return run


def test_a_checkpoint_in_a_run_knows_its_corpus_and_parameters(
    run: RunDirectory, tmp_path: Path
) -> None:
    facts = facts_of_run(run.path / "checkpoints/step_20")
    assert facts["corpus"] == RUN["corpus"]
    assert facts["training"] == {
        "batch_size": 256,
        "model": {"hidden_size": 64},
        "procedure": "cda_incr",
        "initial_checkpoint_sha256": opened(tmp_path / "first_checkpoint").identity,
    }
    assert str(tmp_path) not in json.dumps(facts)  # facts do not depend on the machine


def test_a_corpus_that_changed_is_not_told(run: RunDirectory, tmp_path: Path) -> None:
    checkpoint = run.path / "checkpoints/step_20"
    (tmp_path / "corpus/DONE").write_text("{}")
    assert facts_of_run(checkpoint).keys() == {"training"}
    (tmp_path / "corpus/DONE").unlink()
    assert facts_of_run(checkpoint).keys() == {"training"}


def test_a_checkpoint_anywhere_else_knows_nothing(tmp_path: Path) -> None:
    assert facts_of_run(tmp_path / "somewhere/multiberts-seed_0") == {}


def test_edited_run_configuration_is_named(run: RunDirectory) -> None:
    with open(run.path / "config.gin", "a") as handle:
        handle.write("pretrain.num_steps = lots\n")
    with pytest.raises(UserError, match=r"config\.gin line 7: .* Python literal"):
        facts_of_run(run.path / "checkpoints/step_20")


SCORES = """\
task,metric,procedure,pretrain_seed,step,finetune_seed,score
RTE,accuracy,base,0,2000,0,0.5
RTE,accuracy,base,0,2000,1,0.75
RTE,accuracy,base,1,2000,0,0.9
RTE,accuracy,cda_incr,0,2000,0,0.9
SST-2,accuracy,base,0,2000,0,0.8
"""


def test_scores_are_those_of_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_text(SCORES)
    rte, sst = read_scores(path, PROVENANCE)
    assert (rte["task"], rte["runs"], rte["mean"]) == ("RTE", 2, 0.625)
    assert (rte["lowest"], rte["highest"], rte["evaluation_set"]) == (0.5, 0.75, None)
    assert (sst["task"], sst["runs"], sst["mean"]) == ("SST-2", 1, 0.8)


def test_scores_as_json(tmp_path: Path) -> None:
    path = tmp_path / "scores.json"
    path.write_text('{"masked_lm_accuracy": 0.61, "next_sentence_accuracy": 0.9}')
    first, second = read_scores(path, NOTHING_KNOWN)
    assert (first["metric"], first["mean"]) == ("masked_lm_accuracy", 0.61)
    assert (second["metric"], second["mean"]) == ("next_sentence_accuracy", 0.9)
    path.write_text('[{"metric": "accuracy", "score": 1, "step": 2000}]')
    assert read_scores(path, PROVENANCE)[0]["mean"] == 1.0


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("s.csv", SCORES.replace(",0,2000", ",5,2000"), r"no score of this checkpoint \(procedure"),
        ("s.csv", "task,score\nRTE,1\n", r"columns task, score, expected metric, score \(lacking metric\)"),
        ("s.csv", "metric,score\naccuracy,nan\n", "line 2: the score is 'nan', expected a number"),
        ("s.json", "{", r"s\.json is not JSON"),
        ("s.json", "3", "neither rows nor scores by metric"),
        ("s.json", '[{"metric": "f1"}]', "s.json row 1 has no score"),
    ],
)  # fmt: skip
def test_bad_scores(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        read_scores(tmp_path / name, PROVENANCE)
