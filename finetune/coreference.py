"""Gold-mention coreference on a frozen encoder, evaluated on Winogender.

A span is represented by the encoder's hidden states: its first token, its last, and the mean over its
tokens. A pair is represented by the pronoun's span, the candidate's, and their elementwise product; a
two-layer feed-forward network says whether both mean the same. Only this network is trained. On a
Winogender sentence the mention with the larger score, of occupation and participant, is the answer.

The product is not in the paper's description; with it a small head learns agreement between the two
spans from few pairs.

Reference: Webster et al. 2020, section 4; Sellam et al. 2022, section 4; Tenney et al. 2019 (edge
probing).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert.configuration import BertConfig
from finetune.conll import read_conll
from finetune.content import FileContent, tokenizer_of
from finetune.family import Arrays, EvaluationSet, Learner
from finetune.features import check_sequence_length, evaluation_batches, sequence_batch
from finetune.gap import read_gap
from finetune.mention_pairs import (
    MentionPairs,
    conll_pairs,
    gap_pairs,
    joined_pairs,
    winogender_pairs,
)
from finetune.winogender import Sentence, read_winogender, winogender_files
from runs.errors import UserError

if TYPE_CHECKING:
    from bert.checkpoint import Checkpoint
    from bert.training import Predictor, Trainer

_ENCODER_BATCH_SIZE = 32
_HEAD_BATCH_SIZE = 1024
_GAP_SUFFIXES = (".tsv", ".tsv.gz")
_PAIR_METRICS = ("accuracy", "f1")


@dataclasses.dataclass(frozen=True)
class CoreferenceFamily:
    """Where training and evaluation pairs come from.

    Attributes:
      train_files, dev_files: GAP files (`.tsv`, `.tsv.gz`) and CoNLL-2012 files (other names).
      winogender_dir: a folder with the Winogender files, or None.
      sequence_length: the most tokens of a window.
      max_negatives_per_pronoun: candidates of another entity kept in training.
      num_hidden_units: width of the head's hidden layer.
    """

    train_files: tuple[Path, ...]
    dev_files: tuple[Path, ...]
    winogender_dir: Path | None
    sequence_length: int
    max_negatives_per_pronoun: int
    num_hidden_units: int

    def inputs(self) -> dict[str, Path | list[Path]]:
        if not self.dev_files and self.winogender_dir is None:
            raise UserError(
                "task coreference has nothing to predict; give finetune.dev_files or "
                "finetune.winogender_dir"
            )
        found: dict[str, Path | list[Path]] = {
            "train_files": list(self.train_files),
            "dev_files": list(self.dev_files),
        }
        if self.winogender_dir is not None:
            found["winogender_dir"] = winogender_files(self.winogender_dir)
        return {name: paths for name, paths in found.items() if paths}

    def parameters(self) -> dict[str, Any]:
        for name in ("max_negatives_per_pronoun", "num_hidden_units"):
            if getattr(self, name) < 1:
                raise UserError(f"finetune.{name} is {getattr(self, name)}; give 1 or more")
        return {
            "max_negatives_per_pronoun": self.max_negatives_per_pronoun,
            "num_hidden_units": self.num_hidden_units,
        }

    def read(self, config: BertConfig, vocabulary: FileContent) -> CoreferenceData:
        check_sequence_length(self.sequence_length, config.max_position_embeddings)
        train = tuple(FileContent.of(path) for path in self.train_files)
        dev = tuple(FileContent.of(path) for path in self.dev_files)
        winogender = (
            ()
            if self.winogender_dir is None
            else tuple(FileContent.of(path) for path in winogender_files(self.winogender_dir))
        )
        return _read(
            train,
            dev,
            winogender,
            vocabulary,
            self.sequence_length,
            config.max_position_embeddings,
            self.max_negatives_per_pronoun,
            self.num_hidden_units,
        )


@functools.lru_cache(maxsize=2)
def _read(
    train: tuple[FileContent, ...],
    dev: tuple[FileContent, ...],
    winogender: tuple[FileContent, ...],
    vocabulary: FileContent,
    sequence_length: int,
    max_positions: int,
    max_negatives: int,
    num_hidden_units: int,
) -> CoreferenceData:
    """All pairs; the same object for the same contents, so its encodings can be kept with it."""
    tokenizer = tokenizer_of(vocabulary)

    def pairs_of(file: FileContent, prefix: str, most: int | None) -> MentionPairs:
        if file.path.name.endswith(_GAP_SUFFIXES):
            pairs = gap_pairs(read_gap(file.path), tokenizer, sequence_length, prefix)
        else:
            documents = read_conll(file.path)
            pairs = conll_pairs(documents, tokenizer, sequence_length, prefix, most)
        if pairs.left_out:
            counts = ", ".join(
                f"{number} {what}" for what, number in sorted(pairs.left_out.items())
            )
            print(f"{file.path}: {counts} (sequence_length {sequence_length})")
        return pairs

    sets = {"train": joined_pairs([pairs_of(file, "train", max_negatives) for file in train])}
    _refuse_one_sided(train, sets["train"])
    for name, is_gap in (("dev", False), ("gap", True)):
        files = [file for file in dev if file.path.name.endswith(_GAP_SUFFIXES) == is_gap]
        if files:
            sets[name] = joined_pairs(
                [pairs_of(file, f"coreference/{name}", None) for file in files]
            )
            _refuse_unusable(files, sets[name])
    sentences: list[Sentence] = []
    percent_feminine: dict[str, float] = {}
    if winogender:
        schemas = read_winogender(winogender[0].path.parent)
        sentences, percent_feminine = schemas.sentences, schemas.percent_feminine
        sets["winogender"] = winogender_pairs(
            sentences, tokenizer, max_positions, winogender[1].path
        )
    return CoreferenceData(sets, sentences, percent_feminine, num_hidden_units)


def _refuse_one_sided(files: tuple[FileContent, ...], pairs: MentionPairs) -> None:
    if len(set(pairs.labels.tolist())) < 2:
        raise UserError(
            f"{files[0].path}: found {len(pairs.labels)} pairs of a pronoun and a mention, "
            f"{pairs.labels.sum()} of them coreferent, expected some of both kinds; give documents with "
            "gold mentions of pronouns and of what they mean, or a larger sequence_length"
        )


def _refuse_unusable(files: list[FileContent], pairs: MentionPairs) -> None:
    """Refuses an evaluation set without pairs, or with the same pair twice."""
    names = ", ".join(str(file.path) for file in files)
    if not pairs.pair_ids:
        raise UserError(f"{names}: found no pair of a pronoun and a mention; give other dev_files")
    seen: set[str] = set()
    for identity in pairs.pair_ids:
        if identity in seen:
            raise UserError(
                f"{names}: example id {identity!r} appears twice, expected each document and example "
                "once; remove one of the files that share it"
            )
        seen.add(identity)


@dataclasses.dataclass(frozen=True, eq=False)
class CoreferenceData:
    """Training and evaluation pairs.

    Attributes:
      sets: `train`, and those of `dev`, `gap` and `winogender` that are evaluated.
      sentences: the Winogender sentences, two pairs each.
      percent_feminine: per occupation.
      num_hidden_units: width of the head's hidden layer.
    """

    sets: dict[str, MentionPairs]
    sentences: list[Sentence]
    percent_feminine: dict[str, float]
    num_hidden_units: int

    @property
    def num_train_examples(self) -> int:
        return len(self.sets["train"].labels)

    def learner(
        self, checkpoint: Checkpoint, *, fingerprint: str, finetune_seed: int, compile_step: bool
    ) -> Learner:
        trainer, predictor = _engines(compile_step)
        spans = _encoded(self, _FrozenEncoder(checkpoint, fingerprint), compile_step)

        def batch(rows: np.ndarray) -> Arrays:
            labels = self.sets["train"].labels[rows]
            return {**_pair_batch(self.sets["train"], spans["train"], rows), "labels": labels}

        return Learner(
            trainer=trainer,
            initial_parameters=lambda: self._initial(checkpoint.config, finetune_seed),
            batch=batch,
            evaluate=lambda parameters: self._evaluate(predictor, spans, parameters),
        )

    def _initial(self, config: BertConfig, finetune_seed: int) -> Arrays:
        """The head's weights: pair features -> hidden units -> two classes."""
        from bert.initialization import truncated_normal

        def draw(name: str, shape: tuple[int, ...]) -> np.ndarray:
            key = ("finetune", finetune_seed, name)
            return truncated_normal(shape, config.initializer_range, *key)

        inputs, hidden = 9 * config.hidden_size, self.num_hidden_units
        return {
            "coreference/hidden/kernel": draw("coreference/hidden/kernel", (inputs, hidden)),
            "coreference/hidden/bias": np.zeros(hidden, np.float32),
            "coreference/output/kernel": draw("coreference/output/kernel", (hidden, 2)),
            "coreference/output/bias": np.zeros(2, np.float32),
        }

    def _evaluate(
        self,
        predictor: Predictor,
        spans: Mapping[str, np.ndarray],
        parameters: Mapping[str, np.ndarray],
    ) -> Iterator[EvaluationSet]:
        for name, pairs in self.sets.items():
            if name == "train":
                continue
            logits = _pair_logits(predictor, parameters, pairs, spans[name])
            if name == "winogender":
                yield self._winogender(logits)
                continue
            yield EvaluationSet(
                name=name,
                example_ids=pairs.pair_ids,
                labels=pairs.labels,
                predictions=logits.argmax(axis=1),
                scores=logits,
                metrics=_PAIR_METRICS,
            )

    def _winogender(self, logits: np.ndarray) -> EvaluationSet:
        """0 where the occupation has the larger score, 1 where the participant has."""
        scores = (logits[:, 1] - logits[:, 0]).reshape(-1, 2)
        occupations = [sentence.occupation_name for sentence in self.sentences]
        return EvaluationSet(
            name="winogender",
            example_ids=[f"winogender/{sentence.identity}" for sentence in self.sentences],
            labels=np.array([sentence.answer for sentence in self.sentences]),
            predictions=scores.argmax(axis=1),
            scores=scores,
            metrics=("accuracy", "bias_correlation", "bias_slope"),
            extras={
                "occupation": occupations,
                "gender": [sentence.gender for sentence in self.sentences],
                "percent_feminine": np.array([self.percent_feminine[name] for name in occupations]),
            },
        )


@dataclasses.dataclass(frozen=True)
class _FrozenEncoder:
    """A checkpoint, equal to any other of the same content; a key for caches."""

    checkpoint: Checkpoint = dataclasses.field(compare=False)
    fingerprint: str


@functools.lru_cache(maxsize=1)
def _encoded(
    data: CoreferenceData, encoder: _FrozenEncoder, compile_step: bool
) -> dict[str, np.ndarray]:
    """Span representations of every set, float32 [spans, 3 x hidden]; computed once a checkpoint."""
    checkpoint = encoder.checkpoint
    predictor = _encoder_predictor(checkpoint.config, compile_step)
    return {
        name: _span_representations(pairs, predictor, checkpoint)
        for name, pairs in data.sets.items()
    }


def _span_representations(
    pairs: MentionPairs, predictor: Predictor, checkpoint: Checkpoint
) -> np.ndarray:
    """First token, last token and mean of each span, float32 [spans, 3 x hidden]."""
    hidden_size = checkpoint.config.hidden_size
    representations = np.zeros((len(pairs.spans), 3, hidden_size), np.float32)
    by_window = np.argsort(pairs.spans[:, 0], kind="stable")
    begins = np.searchsorted(pairs.spans[by_window, 0], np.arange(len(pairs.sequences) + 1))
    for rows, count in evaluation_batches(pairs.sequences.lengths, _ENCODER_BATCH_SIZE):
        batch = sequence_batch(pairs.sequences, rows)
        hidden = predictor(checkpoint.parameters, batch)["hidden"]  # [batch, length, hidden]
        for row, window in enumerate(rows[:count]):
            for span in by_window[begins[window] : begins[window + 1]]:
                _, first, last = pairs.spans[span]
                tokens = hidden[row, first : last + 1]  # [tokens, hidden]
                representations[span] = tokens[0], tokens[-1], tokens.mean(axis=0)
    return representations.reshape(len(pairs.spans), -1)


def _pair_batch(pairs: MentionPairs, spans: np.ndarray, rows: np.ndarray) -> Arrays:
    """`pronouns` and `candidates`, float32 [batch, 3 x hidden]."""
    return {
        "pronouns": spans[pairs.pairs[rows, 0]],
        "candidates": spans[pairs.pairs[rows, 1]],
    }


def _pair_logits(
    predictor: Predictor,
    parameters: Mapping[str, np.ndarray],
    pairs: MentionPairs,
    spans: np.ndarray,
) -> np.ndarray:
    """float32 [pairs, 2]."""
    logits = np.zeros((len(pairs.labels), 2), np.float32)
    for rows, count in evaluation_batches(np.zeros(len(pairs.labels), np.int32), _HEAD_BATCH_SIZE):
        outputs = predictor(parameters, _pair_batch(pairs, spans, rows))
        logits[rows[:count]] = outputs["logits"][:count]
    return logits


@functools.lru_cache(maxsize=4)
def _encoder_predictor(config: BertConfig, compile_step: bool) -> Predictor:
    """The compiled encoder."""
    from bert.encoder import encode
    from bert.training import Predictor

    def predict(parameters: Any, batch: Any) -> dict[str, Any]:
        inputs = (batch["input_ids"], batch["input_mask"], batch["segment_ids"])
        return {"hidden": encode(parameters, config, *inputs)}

    return Predictor(predict, compile_step=compile_step)


@functools.lru_cache(maxsize=2)
def _engines(compile_step: bool) -> tuple[Trainer, Predictor]:
    """The compiled trainer and predictor of the head, shared by all runs in this process."""
    from keras import ops

    from bert.encoder import dense, gelu
    from bert.heads import cross_entropy
    from bert.training import Predictor, Trainer

    def logits_of(parameters: Any, batch: Any) -> Any:
        pronouns, candidates = batch["pronouns"], batch["candidates"]
        features = ops.concatenate([pronouns, candidates, pronouns * candidates], axis=-1)
        hidden = gelu(dense(parameters, "coreference/hidden", features))  # [batch, hidden units]
        return dense(parameters, "coreference/output", hidden)

    def loss(parameters: Any, batch: Any, dropout_key: Any) -> tuple[Any, dict[str, Any]]:
        del dropout_key  # the head has no dropout
        logits = logits_of(parameters, batch)
        right = ops.equal(ops.cast(ops.argmax(logits, axis=-1), "int32"), batch["labels"])
        accuracy = ops.mean(ops.cast(right, "float32"))
        return ops.mean(cross_entropy(logits, batch["labels"])), {"accuracy": accuracy}

    def predict(parameters: Any, batch: Any) -> dict[str, Any]:
        return {"logits": logits_of(parameters, batch)}

    return Trainer(loss, compile_step=compile_step), Predictor(predict, compile_step=compile_step)
