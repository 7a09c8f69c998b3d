"""`multiberts checkpoint inspect|convert|compare`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from multiberts.bert.checkpoint.checkpoint import (
    ALWAYS_KNOWN,
    HUGGING_FACE,
    INITIALISED,
    PROVENANCE,
    read_checkpoint,
    same_bits,
)
from multiberts.bert.checkpoint.conversion import convert_checkpoint
from multiberts.bert.checkpoint.fine_tuned import FINE_TUNED, fine_tuned_line
from multiberts.bert.checkpoint.saved_model import SAVED_MODEL, export_saved_model
from multiberts.bert.model.configuration import Gelu
from multiberts.bert.vocabulary import VOCABULARY, Vocabulary, vocabulary_file
from multiberts.runs import console
from multiberts.runs.errors import UserError
from multiberts.runs.files import sha256_of_file
from multiberts.runs.parameters import Seed


def inspect_checkpoint(*, checkpoint: str) -> str:
    """Returns a checkpoint's sizes, origin and checksums, and one line per variable.

    Args:
      checkpoint: a directory in the released TF1 layout or in the Hugging Face layout, or `hub:<repository>`
        to download.
    """
    opened = read_checkpoint(checkpoint, need_vocabulary=False, need_finite=False)
    directory, config, provenance = opened.directory, opened.config, opened.provenance
    count = sum(values.size for values in opened.variables.values())
    layout = "Hugging Face" if opened.layout == HUGGING_FACE else "TF1, as released"
    lines = [
        f"directory      {directory}",
        f"layout         {layout}",
        f"model          {config.num_hidden_layers} layers, hidden {config.hidden_size}, "
        f"{config.num_attention_heads} heads, intermediate {config.intermediate_size}, "
        f"{config.max_position_embeddings} positions, vocabulary {config.vocab_size}",
        f"activation     GELU, {config.gelu} form",
        f"parameters     {count:,} in {len(opened.variables)} variables",
        *(
            f"{name:<14} {'unknown' if provenance[name] is None else provenance[name]}"
            for name in ALWAYS_KNOWN
        ),
    ]
    if FINE_TUNED in provenance:
        lines.append(f"fine-tuned     {fine_tuned_line(provenance[FINE_TUNED])}")
    if INITIALISED in provenance:
        names = provenance[INITIALISED]["variables"]
        lines.append(f"drawn          {len(names)} variables: {', '.join(names)}")
    verdict = "match" if opened.files else "not checked: there is no"
    lines.append(f"checksums      {verdict} {PROVENANCE}{'' if opened.files else ' with it'}")
    paths = [directory / name for name in opened.files] or [*directory.iterdir()]
    for path in sorted(filter(Path.is_file, paths)):
        lines.append(f"  {sha256_of_file(path)}  {path.stat().st_size:>13,} bytes  {path.name}")
    if not vocabulary_file(directory / VOCABULARY).is_file():
        lines.append(f"note           there is no {VOCABULARY}; a stage that reads text needs one")
    rows = [("variable", "shape", "mean", "deviation", "not finite")]
    bad = 0
    for name, values in opened.variables.items():
        not_finite = int(values.size - np.isfinite(values).sum())
        bad += not_finite
        with np.errstate(invalid="ignore", over="ignore"):
            mean, deviation = values.mean(dtype=np.float64), values.std(dtype=np.float64)
        shape = " x ".join(map(str, values.shape))
        rows.append((name, shape, f"{mean:.6f}", f"{deviation:.6f}", f"{not_finite or '-'}"))
    verdict = f"{bad} numbers are NaN or infinite" if bad else "all numbers are finite"
    return console.joined([*lines, "", *_aligned(rows), "", verdict])


def convert_checkpoints(
    *,
    sources: Sequence[str],
    target: str,
    to: Literal["tf1", "hugging_face", "saved_model"],
    named_as_released: Literal["seed", "step"] | None = None,
    vocabulary: str | None = None,
    corpus: str | None = None,
    scores: str | None = None,
    initialise_missing: Seed | None = None,
    gelu: Gelu | None = None,
) -> str:
    """Writes checkpoints in another layout, bit for bit, with a model card.

    Args:
      sources: directories of checkpoints, or `hub:<repository>`.
      target: a new directory.
      to: layout to write; `saved_model` is a TensorFlow SavedModel of a model fine-tuned on texts
        or pairs, from texts to predictions.
      named_as_released: `target` is a folder, and each checkpoint gets the release's name in it:
        `multiberts-seed_0`, or `multiberts-seed_0-step_20k`.
      vocabulary: `vocab.txt`, if the source has none.
      corpus: `corpus.json` for the card, if the run is missing.
      scores: file of scores for the card: `scores.csv` of `multiberts evaluate`, CSV or JSON rows with
        metric and score, or a JSON object of scores by metric.
      initialise_missing: pretrain_seed whose initial weights replace a missing pooler and missing
        pre-training heads; the card notes it.
      gelu: form of GELU that the weights were trained with, to be recorded. By default, `gelu` in a Hugging
        Face `config.json` means the exact form for fine-tuned models, and the tanh form for others.

    Returns:
      One line per checkpoint: its new path, or that it already exists.
    """
    if len(sources) > 1 and named_as_released is None:
        raise UserError(
            "several checkpoints cannot go into one directory; add --named_as_released=step, or "
            "convert them one by one"
        )
    options: dict[str, Any] = {
        "named_as_released": named_as_released,
        "corpus": corpus,
        "scores": scores,
        "initialise_missing": initialise_missing,
        "gelu": gelu,
    }
    if to == SAVED_MODEL:
        for name, value in options.items():
            if value is not None:
                raise UserError(f"--to saved_model does not take --{name}; leave it out")
        saved_model = export_saved_model(sources[0], target, vocabulary=vocabulary)
        return f"{sources[0]} -> {saved_model} (who loads it imports tensorflow_text first)"
    lines = []
    for source in sources:
        directory, is_new = convert_checkpoint(source, target, to, vocabulary=vocabulary, **options)
        there = "" if is_new else " (there already, left as it is)"
        lines.append(f"{source} -> {directory}{there}")
    return console.joined(lines)


def compare_checkpoints(*, first: str, second: str, strict: bool = False) -> int:
    """Prints the differences between two checkpoints.

    Args:
      first: directory of a checkpoint, or `hub:<repository>`.
      second: directory or name of the other checkpoint, in either layout.
      strict: whether to list every differing variable, and to exit with 1 on any difference.

    Returns:
      0; with `strict`, 1 unless the checkpoints are equal bit for bit.
    """
    opened = tuple(
        read_checkpoint(name, need_vocabulary=False, need_finite=False) for name in (first, second)
    )
    configs = [dataclasses.asdict(checkpoint.config).items() for checkpoint in opened]
    lines = [
        f"{name}: {before} and {after}"
        for (name, before), (_, after) in zip(*configs, strict=True)
        if before != after
    ]
    paths = [vocabulary_file(each.directory / VOCABULARY) for each in opened]
    # Vocabularies can only be compared if both directories have one (a model saved alone has none).
    if all(map(Path.is_file, paths)):
        vocabulary, other = map(Vocabulary.open, paths)
        lines += [differ] if (differ := vocabulary.difference(other)) else []
    variables, others = (checkpoint.variables for checkpoint in opened)
    names = sorted(variables.keys() | others.keys())
    rows = [
        row for name in names if (row := _difference(name, variables.get(name), others.get(name)))
    ]
    if rows and strict:
        lines += _aligned([("variable", "first", "second", "largest |a-b|", "relative"), *rows])
    equal = f"{len(names) - len(rows)} of {len(names)} variables are equal bit for bit"
    measured = [row for row in rows if row[3] != "nan"]
    if measured:
        name, *_, absolute, _ = max(measured, key=lambda row: float(row[3]))
        equal += f"; the largest difference is {absolute}, in {name}"
    if len(rows) > len(measured):
        equal += f"; {len(rows) - len(measured)} cannot be compared (other shapes, missing or NaN)"
    console.report(console.joined([*lines, equal]))
    return 1 if strict and (lines or rows) else 0


def _difference(
    name: str, first: np.ndarray | None, second: np.ndarray | None
) -> tuple[str, ...] | None:
    """Returns a variable's row in the table of differences; None if all bits are equal.

    Its numbers are the largest |a - b| and the largest |a - b| / max(|a|, |b|), where 0 / 0 counts as
    0; NaN where the shapes differ or either holds NaN.
    """
    shapes = ["missing" if x is None else " x ".join(map(str, x.shape)) for x in (first, second)]
    if first is None or second is None or first.shape != second.shape:
        return (name, *shapes, "nan", "nan")
    if same_bits(first, second):
        return None
    one, other = first.astype(np.float64), second.astype(np.float64)
    with np.errstate(invalid="ignore"):
        absolute = np.abs(one - other)
        scale = np.maximum(np.abs(one), np.abs(other))
        relative = np.where(scale == 0, 0.0, absolute / np.where(scale == 0, 1.0, scale))
    return (name, *shapes, f"{absolute.max():.3g}", f"{relative.max():.3g}")


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligns columns: the first two left, numbers right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
