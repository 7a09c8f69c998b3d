from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from multiberts.evaluate.prediction_files.prediction_file import read_file, write_predictions
from multiberts.evaluate.scoring import parts_of
from multiberts.finetune.text.challenge_sets import HANS, evaluation_sources
from multiberts.finetune.text.glue import GLUE_TASKS
from multiberts.finetune.text.task import outcome
from multiberts.runs.errors import UserError
from multiberts.runs.files import read_lines

COLUMNS = (
    *("gold_label", "Sentence1_binary_parse", "Sentence2_binary_parse"),
    *("Sentence1_parse", "Sentence2_parse", "sentence1", "sentence2"),
    *("pairID", "heuristic", "subcase", "template"),
)
HALVES = ("lexical_overlap", "subsequence", "constituent")

# What the authors' evaluate_heur_output.py prints for the predictions that lie next to the set: the
# heuristics above, entailed, then non-entailed.
PRINTED = {
    "decomp_attn_heur_preds": (0.9892, 0.9956, 0.9666, 0.0082, 0.0238, 0.033),
    "esim_heur_preds": (0.982, 0.9978, 0.9852, 0.0098, 0.018, 0.008),
    "spinn_preds_heur": (0.9578, 0.9556, 0.9318, 0.0214, 0.059, 0.1052),
    "bert_preds": (0.9464, 0.9932, 0.9844, 0.164, 0.0386, 0.1612),
}
PRINTED_SUBCASES_OF_BERT = {
    "ln_subject/object_swap": 0.001, "ln_preposition": 0.246, "ln_passive": 0.0,
    "le_conjunction": 0.765, "sn_NP/Z": 0.102, "cn_embedded_under_if": 0.499,
    "ce_embedded_under_since": 0.931, "ce_adverb": 1.0,
}  # fmt: skip


def row(label: str, pair: str, second: str = "b .") -> str:
    values = (label, "( a )", "( b )", "(ROOT a)", "(ROOT b)", "a .", second, pair)
    return "\t".join((*values, "lexical_overlap", "ln_passive", "temp3")) + "\n"


def hans(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "heuristics_evaluation_set.txt"
    path.write_text("\t".join(COLUMNS) + "\n" + "".join(rows))
    return path


def test_pairs_keep_their_ids_labels_and_heuristics(tmp_path: Path) -> None:
    path = hans(tmp_path, row("non-entailment", "ex7"), row("entailment", "ex2", "c ."))
    examples = HANS((path,), "hans")
    assert examples.example_ids == ["hans/ex7", "hans/ex2"]
    assert examples.labels is not None
    assert examples.labels.tolist() == [0, 1]
    assert examples.second_texts == ["b .", "c ."]
    assert examples.extras == {
        "heuristic": ["lexical_overlap"] * 2,
        "subcase": ["ln_passive"] * 2,
        "template": ["temp3"] * 2,
    }


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row("neutral", "ex0")], "line 2: found gold_label 'neutral', expected non-entailment or"),
        ([row("entailment", "ex0")] * 2, "line 3: pairID 'ex0' is in line 2 already"),
        ([row("entailment", "ex0") + "a\tb\n"], "line 3: found 2 columns, expected 11"),
        ([], "has a header and no rows"),
    ],
)
def test_bad_files_are_refused_with_their_line(
    tmp_path: Path, rows: list[str], message: str
) -> None:
    path = hans(tmp_path, *rows)
    with pytest.raises(UserError) as caught:
        HANS((path,), "hans")
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


def test_outputs_of_models_of_inference_are_merged_and_those_of_others_refused(
    tmp_path: Path,
) -> None:
    path = hans(tmp_path, row("entailment", "ex0"))
    (source,) = evaluation_sources(GLUE_TASKS["MNLI"], {"hans": str(path)}, None)
    # contradiction, entailment, neutral: the largest decides, not the sum of two.
    logits = np.log(np.array([[0.35, 0.4, 0.25], [0.1, 0.2, 0.7], [0.5, 0.3, 0.2]], np.float32))
    predictions, scores, outputs = outcome(logits, regression=False, merge=source.merge)
    assert predictions.tolist() == [1, 0, 0]
    np.testing.assert_allclose(np.exp(scores), [[0.6, 0.4], [0.8, 0.2], [0.7, 0.3]], rtol=1e-6)
    np.testing.assert_array_equal(np.stack(list(outputs.values()), axis=1), logits)
    (source,) = evaluation_sources(GLUE_TASKS["RTE"], {"hans": str(path)}, None)
    # RTE's outputs are entailment, not_entailment: the other way round.
    logits = np.array([[3, 1], [0, 2]], np.float32)
    predictions, scores, _ = outcome(logits, regression=False, merge=source.merge)
    assert predictions.tolist() == [1, 0]
    assert scores.tolist() == [[1, 3], [2, 0]]
    for task in ("SST-2", "STS-B", "MRPC"):
        with pytest.raises(UserError, match=f"for models of inference.*task {task} has"):
            evaluation_sources(GLUE_TASKS[task], {"hans": str(path)}, None)


@pytest.fixture(scope="module")
def official(shared_data: Path):
    return HANS((shared_data / "hans" / "heuristics_evaluation_set.txt.gz",), "hans")


def test_the_official_set_has_its_published_shape(official) -> None:
    """McCoy et al. 2019, section 3: 30 subcases of 1000 pairs, half of each heuristic entailed."""
    assert len(official.example_ids) == 30000
    assert set(np.unique(official.extras["subcase"], return_counts=True)[1]) == {1000}
    assert official.labels.mean() == 0.5
    assert official.example_ids[29999] == "hans/ex29999"


# Files of the others are read in the same way.
READ = ("esim_heur_preds", "bert_preds")


@pytest.mark.parametrize(
    "model", [pytest.param(each, marks=[pytest.mark.slow] * (each not in READ)) for each in PRINTED]
)
def test_scores_of_the_authors_models_are_those_their_program_prints(
    shared_data: Path, official, tmp_path: Path, model: str
) -> None:
    lines = read_lines(shared_data / "hans" / "reference_preds" / f"{model}.txt.gz")
    answers = dict(line.split(",") for line in lines[1:])
    # As a three-way model's outputs, through the prediction file and back.
    names = GLUE_TASKS["MNLI"].labels
    assert names is not None
    logits = np.array(
        [
            [float(name == answers[example_id.removeprefix("hans/")]) for name in names]
            for example_id in official.example_ids
        ],
        np.float32,
    )
    predictions, scores, _ = outcome(logits, regression=False, merge=((0, 2), (1,)))
    write_predictions(
        tmp_path / "hans.tfrecord",
        example_ids=official.example_ids,
        labels=official.labels,
        predictions=predictions,
        scores=scores,
        extras=official.extras,
    )
    read = read_file(tmp_path / "hans.tfrecord")
    right = read.predictions == read.labels
    found = {
        (part.by, part.part, part.label): right[part.rows].mean()
        for part in parts_of(read.labels, read.extras)
    }
    halves = [("heuristic", heuristic, label) for label in (1.0, 0.0) for heuristic in HALVES]
    assert [found[half] for half in halves] == pytest.approx(PRINTED[model], abs=1e-12)
    if model == "bert_preds":
        for subcase, printed in PRINTED_SUBCASES_OF_BERT.items():
            assert found["subcase", subcase, None] == pytest.approx(printed, abs=1e-12)


def test_logits_of_ten_mnli_models_give_their_reported_accuracy(
    shared_data: Path, official
) -> None:
    """Real logits, kept in half precision: one of the 300,000 answers may differ."""
    released = np.load(shared_data / "multiseed" / "instability_bert_base_10seeds.npz")
    assert tuple(released["label_names"]) == GLUE_TASKS["MNLI"].labels
    for logits, reported in zip(
        released["logits_hans"], released["reported_acc_hans"], strict=True
    ):
        predictions, _, _ = outcome(
            logits.astype(np.float32), regression=False, merge=((0, 2), (1,))
        )
        assert np.mean(predictions == official.labels) == pytest.approx(reported, abs=4e-5)
