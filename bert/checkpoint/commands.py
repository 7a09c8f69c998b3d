"""`multiberts checkpoint inspect|convert|compare`."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from multiberts.bert.checkpoint.checkpoint import (
    HUGGING_FACE,
    LAYOUTS,
    PROVENANCE,
    VOCABULARY,
    Checkpoint,
    read_checkpoint,
    read_provenance,
    same_bits,
)
from multiberts.bert.checkpoint.fine_tuned import FINE_TUNED, fine_tuned_line
from multiberts.bert.checkpoint.hub import checkpoint_directory
from multiberts.bert.checkpoint.saved_model import SAVED_MODEL, export_saved_model
from multiberts.runs import console
from multiberts.runs.command import EXIT_USER_ERROR, close_output
from multiberts.runs.errors import UserError
from multiberts.runs.files import sha256_of_file

EXIT_DIFFERENT = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
      arguments: of the command line; None: those of this process.

    Returns:
      The exit status: 0, 1 where two checkpoints differ, 2 for bad input, 141 where nobody reads on.
    """
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except UserError as error:
        console.error(str(error))
        return EXIT_USER_ERROR
    except BrokenPipeError:
        return close_output()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="multiberts checkpoint",
        description="Looks at checkpoints of BERT, converts and compares them. A checkpoint is a "
        "directory in the released TF1 layout or in that of Hugging Face, or hub:<repository>, which is "
        "fetched.",
    )
    commands = parser.add_subparsers(required=True, metavar="inspect|convert|compare")
    inspect = commands.add_parser(
        "inspect", help="what a checkpoint is: sizes, origin, checksums, a line for each variable"
    )
    inspect.add_argument("directory", help="of the checkpoint")
    inspect.set_defaults(run=_inspect)
    _add_convert(commands)
    compare = commands.add_parser(
        "compare", help="how far two checkpoints are apart; exits with 1 where they differ"
    )
    compare.add_argument("first", help="directory of a checkpoint")
    compare.add_argument("second", help="directory of another, in either layout")
    compare.set_defaults(run=_compare)
    return parser


def _add_convert(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    convert = commands.add_parser(
        "convert", help="write checkpoints in another layout, bit for bit, with a model card"
    )
    convert.add_argument("sources", nargs="+", metavar="SOURCE", help="directory of a checkpoint")
    convert.add_argument("target", metavar="TARGET", help="new directory")
    convert.add_argument(
        "--to",
        required=True,
        choices=(*LAYOUTS, SAVED_MODEL),
        help="the layout to write; saved_model is TensorFlow's, of a fine-tuned model: texts in, predictions "
        "out",
    )
    convert.add_argument(
        "--named_as_released",
        choices=("seed", "step"),
        help="TARGET is a folder, and each checkpoint gets the release's name in it: "
        "multiberts-seed_0, or multiberts-seed_0-step_20k",
    )
    convert.add_argument("--vocabulary", metavar="FILE", help="vocab.txt, where SOURCE has none")
    convert.add_argument(
        "--corpus", metavar="FILE", help="corpus.json, for the card, where the run is not there"
    )
    convert.add_argument(
        "--scores",
        metavar="FILE",
        help="for the card: scores.csv of `multiberts evaluate`, any CSV or JSON rows with metric "
        "and score, or a JSON object of scores by metric",
    )
    convert.add_argument(
        "--initialise_missing",
        metavar="SEED",
        type=int,
        help="draw a missing pooler and missing pre-training heads as at step 0 of this "
        "pretrain_seed; the card says so",
    )
    convert.set_defaults(run=_convert)


def _inspect(options: argparse.Namespace) -> int:
    directory = checkpoint_directory(options.directory)
    checkpoint = read_checkpoint(directory, need_vocabulary=False, need_finite=False)
    for line in (*_summary(directory, checkpoint), "", *_variables(checkpoint)):
        console.report(line)
    return 0


def _summary(directory: Path, checkpoint: Checkpoint) -> list[str]:
    config, provenance = checkpoint.config, checkpoint.provenance
    variables = {**checkpoint.parameters, **checkpoint.head}
    count = sum(values.size for values in variables.values())
    layout = "Hugging Face" if checkpoint.layout == HUGGING_FACE else "TF1, as released"
    lines = [
        f"directory      {directory}",
        f"layout         {layout}",
        f"model          {config.num_hidden_layers} layers, hidden {config.hidden_size}, "
        f"{config.num_attention_heads} heads, intermediate {config.intermediate_size}, "
        f"{config.max_position_embeddings} positions, vocabulary {config.vocab_size}",
        f"parameters     {count:,} in {len(variables)} variables",
        *(
            f"{name:<14} {'unknown' if provenance[name] is None else provenance[name]}"
            for name in ("procedure", "pretrain_seed", "data_seed", "step")
        ),
    ]
    if FINE_TUNED in provenance:
        lines.append(f"fine-tuned     {fine_tuned_line(provenance[FINE_TUNED])}")
    if "initialised" in provenance:
        names = provenance["initialised"]["variables"]
        lines.append(f"untrained      {len(names)} variables: {', '.join(names)}")
    recorded = read_provenance(directory).get("files", {})
    verdict = (
        f"match {PROVENANCE}" if recorded else f"not checked: there is no {PROVENANCE} with it"
    )
    lines.append(f"checksums      {verdict}")
    names = sorted(recorded) or sorted(path.name for path in directory.iterdir() if path.is_file())
    for name in names:
        path = directory / name
        lines.append(f"  {sha256_of_file(path)}  {path.stat().st_size:>13,} bytes  {name}")
    if not checkpoint.vocabulary_path.is_file():
        lines.append(f"note           there is no {VOCABULARY}; a stage that reads text needs one")
    return lines


def _variables(checkpoint: Checkpoint) -> list[str]:
    rows = [("variable", "shape", "mean", "deviation", "not finite")]
    bad = 0
    for name, values in {**checkpoint.parameters, **checkpoint.head}.items():
        not_finite = int(values.size - np.isfinite(values).sum())
        bad += not_finite
        with np.errstate(invalid="ignore", over="ignore"):
            mean, deviation = values.mean(dtype=np.float64), values.std(dtype=np.float64)
        shape = " x ".join(map(str, values.shape))
        rows.append((name, shape, f"{mean:.6f}", f"{deviation:.6f}", f"{not_finite or '-'}"))
    verdict = f"{bad} numbers are NaN or infinite" if bad else "all numbers are finite"
    return [*_aligned(rows), "", verdict]


def _convert(options: argparse.Namespace) -> int:
    from multiberts.bert.checkpoint.conversion import convert_checkpoint

    if len(options.sources) > 1 and options.named_as_released is None:
        raise UserError(
            "several checkpoints cannot go into one directory; add --named_as_released=step, or "
            "convert them one by one"
        )
    if options.to == SAVED_MODEL:
        unused = ("named_as_released", "corpus", "scores", "initialise_missing")
        given = [f"--{name}" for name in unused if getattr(options, name) is not None]
        if given:
            raise UserError(f"--to saved_model does not take {given[0]}; leave it out")
    for source in options.sources:
        if options.to == SAVED_MODEL:
            made = export_saved_model(
                checkpoint_directory(source), options.target, vocabulary=options.vocabulary
            )
            console.report(f"{source} -> {made}")
            continue
        directory, is_new = convert_checkpoint(
            checkpoint_directory(source),
            options.target,
            options.to,
            named_as_released=options.named_as_released,
            vocabulary=options.vocabulary,
            corpus=options.corpus,
            scores=options.scores,
            initialise_missing=options.initialise_missing,
        )
        console.report(
            f"{source} -> {directory}" + ("" if is_new else " (there already, left as it is)")
        )
    return 0


def _compare(options: argparse.Namespace) -> int:
    first, second = (
        read_checkpoint(checkpoint_directory(directory), need_vocabulary=False, need_finite=False)
        for directory in (options.first, options.second)
    )
    lines = _other_differences(first, second)
    one, other = ({**each.parameters, **each.head} for each in (first, second))
    names = sorted(one.keys() | other.keys())
    rows = [row for name in names if (row := _difference(name, one.get(name), other.get(name)))]
    if rows:
        lines += _aligned([("variable", "first", "second", "largest |a-b|", "relative"), *rows])
    lines.append(f"{len(names) - len(rows)} of {len(names)} variables are equal bit for bit")
    console.report("\n".join(lines))
    return EXIT_DIFFERENT if len(lines) > 1 else 0


def _difference(
    name: str, first: np.ndarray | None, second: np.ndarray | None
) -> tuple[str, ...] | None:
    """Returns the row of a variable in the table of differences; None where every bit is equal.

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


def _other_differences(first: Checkpoint, second: Checkpoint) -> list[str]:
    """Returns the differences besides the weights."""
    lines = [
        f"{field.name}: {getattr(first.config, field.name)} and {getattr(second.config, field.name)}"
        for field in dataclasses.fields(first.config)
        if getattr(first.config, field.name) != getattr(second.config, field.name)
    ]
    vocabularies = (first.vocabulary_path, second.vocabulary_path)
    # A directory without one (a model saved alone) says nothing about its vocabulary.
    if all(path.is_file() for path in vocabularies) and len(
        {sha256_of_file(path) for path in vocabularies}
    ) > 1:  # fmt: skip
        lines.append(f"{VOCABULARY}: the files differ")
    return lines


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
