"""The data of the worked example."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas
import xarray

from multiberts.evaluate.metrics.probability import softmax
from multiberts.runs.errors import UserError

TEN_SEEDS = "multiseed/instability_bert_base_10seeds.npz"


HUNDRED_RUNS = "multiseed/berts_of_a_feather_accuracies_by_run.csv"


NUMBER_RIGHT = "multiseed/mnli_development_set_number_of_correct_responses.txt.gz"


RESPONDERS = "multiseed/nlu_test_sets_irt_correctness.npz"


HANS = "hans/heuristics_evaluation_set.txt.gz"


HANS_BERT = "hans/reference_preds/bert_preds.txt.gz"


MNLI = "glue/MNLI/dev_matched.tsv.gz"


HEURISTICS = {"l": "lexical overlap", "s": "subsequence", "c": "constituent"}


@dataclass(frozen=True, eq=False)
class Data:
    """The data in the files.

    Attributes:
      mnli, hans: ten fine-tuning seeds, dims (run, example[, class]): prediction, scores, label.
      published: the one BERT of the HANS paper on HANS, of the same layout.
      reported: accuracies that the ten seeds' authors reported, by set [10].
      hundred: accuracies of 100 fine-tuned BERTs [runs], by column of their file.
      number_right: how many of these were right on each MNLI example [9815].
      responders: row of each model in the tables of `correct`.
      correct: 0/1 by test set [models, examples].
    """

    mnli: xarray.Dataset
    hans: xarray.Dataset
    published: xarray.Dataset
    reported: dict[str, np.ndarray]
    hundred: pandas.DataFrame
    number_right: np.ndarray
    responders: dict[str, int]
    correct: dict[str, np.ndarray]

    def group(self, test_set: str, name: str) -> xarray.Dataset:
        """Three separately pre-trained models at their best checkpoint, right (1) or wrong (0)."""
        rows = [self.responders[f"{name}-{number}_best"] for number in (1, 2, 3)]
        return dataset(self.correct[test_set][rows], np.ones(self.correct[test_set].shape[1], int))


def dataset(
    predictions: np.ndarray, labels: np.ndarray, **of_examples: np.ndarray
) -> xarray.Dataset:
    """Runs with the seeds 1, 2, ..., and what is known of each example."""
    return xarray.Dataset(
        {"prediction": (("run", "example"), predictions), "label": ("example", labels)},
        coords={
            "pretrain_seed": ("run", np.arange(1, len(predictions) + 1)),
            **{name: ("example", values) for name, values in of_examples.items()},
        },
    )


def load(folder: Path) -> Data:
    """Reads the files.

    Raises:
      UserError: one is missing, or two of them list other examples.
    """
    for name in (TEN_SEEDS, HUNDRED_RUNS, NUMBER_RIGHT, RESPONDERS, HANS, HANS_BERT, MNLI):
        if not (folder / name).is_file():
            raise UserError(
                f"{folder} holds no {name}; give with --data the folder of real data that holds "
                "multiseed/, hans/ and glue/"
            )
    ten = np.load(folder / TEN_SEEDS)
    mnli, hans = _table(folder / MNLI), _table(folder / HANS)
    hundred = pandas.read_csv(folder / HUNDRED_RUNS, encoding="utf-8-sig", dtype=object)
    hundred = hundred[hundred["Run"].str.fullmatch(r"Run \d+", na=False)].set_index("Run")
    responders = np.load(folder / RESPONDERS)
    return Data(
        mnli=dataset(
            ten["preds_mnli"], ten["gold_mnli"], premise=mnli["sentence1"].to_numpy()
        ).assign(scores=(("run", "example", "class"), ten["logits_mnli"])),
        hans=_hans(ten, hans),
        published=_published(_table(folder / HANS_BERT, ","), hans),
        reported={name: ten[f"reported_acc_{name}"] for name in ("mnli", "hans")},
        hundred=hundred.astype(float),
        number_right=_table(folder / NUMBER_RIGHT).iloc[:, -1].astype(int).to_numpy(),
        responders={name: row for row, name in enumerate(responders["responders"].tolist())},
        correct={
            name.removeprefix("correct_"): responders[name]
            for name in responders
            if name != "responders"
        },
    )


def sample(examples: int = 240) -> Data:
    """Makes data up in the layout of the files, so that every section can be tried without them.

    A run is right on an example where its skill, the example's ease and chance add up to more than 0.

    Args:
      examples: of each test set; a multiple of 12.
    """
    random = np.random.default_rng(0)
    subcases = [
        f"{letter}{answer}_{n}"
        for answer in "ne"
        for letter in HEURISTICS
        for n in ("passive", "made_up")
    ]
    subcase = np.repeat(subcases, examples // len(subcases))
    ease = random.normal(1.0, 1.0, examples)

    def is_right(skills: np.ndarray, noise: float = 0.7) -> np.ndarray:
        return skills[:, None] + ease + noise * random.normal(size=(len(skills), examples)) > 0

    def runs(
        number: int, labels: np.ndarray, num_classes: int, **columns: np.ndarray
    ) -> xarray.Dataset:
        good = is_right(random.normal(0, 0.1, number))
        answers = np.where(good, labels, (labels + 1) % num_classes)
        margins = random.gamma(2.0, size=(number, examples, 1)) * np.eye(num_classes)[answers]
        scores = (("run", "example", "class"), margins)
        return dataset(answers, labels, **columns).assign(scores=scores)

    pairs = np.arange(examples) // 3
    mnli = runs(10, random.integers(0, 3, examples), 3, premise=pairs.astype(str))
    entails = np.char.find(subcase, "e_") == 1
    hans = runs(10, entails.astype(int), 2, subcase=subcase, template=pairs.astype(str))
    many = is_right(random.normal(0, 0.2, 100))
    hundred = {"MNLI dev acc.": many.mean(1), "Overall accuracy": many.mean(1)}
    hundred |= {name: many[:, subcase == name].mean(1) for name in dict.fromkeys(subcase)}
    for word, letter in (("Lexical", "l"), ("Subseq", "s"), ("Constituent", "c")):
        for kind, answer in (("nonent", "n"), ("entailed", "e")):
            here = np.char.startswith(subcase, letter + answer)
            hundred[f"{word} ({kind})"] = many[:, here].mean(1)
    models = [f"roberta-base-{size}-{n}_best" for size in ("10M", "100M", "1B") for n in (1, 2, 3)]
    skills = np.repeat([-0.3, 0.0, 0.3], 3)
    return Data(
        mnli=mnli,
        hans=hans,
        published=runs(1, entails.astype(int), 2),
        reported={"mnli": right(mnli).mean(1), "hans": right(hans).mean(1)},
        hundred=pandas.DataFrame(hundred),
        number_right=many.sum(0),
        responders={name: row for row, name in enumerate(models)},
        correct={
            name: is_right(gain * skills + random.normal(0, 0.5, 9), 1.4).astype(int)
            for name, gain in (("boolq", 1), ("copa", 6), ("mnli", 1), ("snli", 2))
        },
    )


def _table(path: Path, separator: str = "\t") -> pandas.DataFrame:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return pandas.read_csv(file, sep=separator, dtype=object, quoting=3, keep_default_na=False)


def _hans(ten: np.lib.npyio.NpzFile, pairs: pandas.DataFrame) -> xarray.Dataset:
    """HANS asks for entailment or not; the other two of MNLI's classes are joined."""
    entails = softmax(ten["logits_hans"])[..., 1]
    return dataset(
        (ten["preds_hans"] == 1).astype(int),
        ten["gold_hans_entailment"].astype(int),
        subcase=pairs["subcase"].to_numpy(),
        template=pairs["template"].to_numpy(),
    ).assign(
        scores=(("run", "example", "class"), np.log(np.stack([1 - entails, entails], axis=-1)))
    )


def _published(answers: pandas.DataFrame, pairs: pandas.DataFrame) -> xarray.Dataset:
    if answers["pairID"].tolist() != pairs["pairID"].tolist():
        raise UserError(f"{HANS_BERT} and {HANS} list other pairs; fetch both again")
    answer, gold = ((table["gold_label"] == "entailment").astype(int) for table in (answers, pairs))
    return dataset(answer.to_numpy()[None], gold.to_numpy())


def right(data: xarray.Dataset) -> np.ndarray:
    """1.0 where a run is right [runs, examples]."""
    return (data["prediction"] == data["label"]).to_numpy().astype(float)


def parts_of_hans(data: Data) -> Iterator[tuple[str, np.ndarray]]:
    """Names of the six groups of HANS, and which examples are theirs."""
    subcase = data.hans["subcase"].to_numpy().astype(str)
    for kind, answer in (("n", "not entailed"), ("e", "entailed")):
        for letter, name in HEURISTICS.items():
            yield f"{name}, {answer}", np.char.startswith(subcase, letter + kind)
