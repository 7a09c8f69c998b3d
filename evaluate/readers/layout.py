"""Arm, task, seed and run of each file of a folder or list of paths, from its path.

Only this module interprets file names. The seed is the number after the word "seed", or else the last
number of the name. Differing words and folders before it name the arm, differing words after it name the
task; known task names are tasks in any position.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from multiberts.evaluate.readers.log_folders import logs_by_task, logs_of_task
from multiberts.evaluate.readers.rows import SPLITS
from multiberts.runs import console
from multiberts.runs.errors import UserError, counted

# Endings of the files that a folder is searched for.
_ENDINGS = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".npz", ".npy", ".eval", ".arrow")
KINDS = "CSV, TSV, JSON, JSON lines, Parquet, .npz, .npy or an evaluation log"

_BETWEEN = " _.=-"
_SEED = re.compile(r"seed[ _\-=]*(\d+)", re.IGNORECASE)
_LAST_NUMBER = re.compile(
    rf"(?:(?<![a-z])(?:run|repeat|rep|trial|s)[{_BETWEEN}]*)?(\d+)(?!.*\d)", re.IGNORECASE
)
# Words before a number that is rarely a seed.
_NO_SEED = re.compile(
    r"(?<![a-z])(steps?|epochs?|folds?|layers?|checkpoint|ckpt|iter(ation)?s?|version|v|part|shard|split|gpt|"
    rf"llama)[{_BETWEEN}]*$",
    re.IGNORECASE,
)
# Several runs of one seed, such as finetune_seed_1 below seed_0.
_RUN = re.compile(r"(?:[a-z]+[ _\-]?)?(?:seed|run|repeat|rep|trial)[ _\-=]*(\d+)", re.IGNORECASE)
# Other programs name these files by task and time, so only their folders name runs.
_BY_FOLDER = re.compile(r"samples_|per_instance_stats|(result-)?\d{4}[_-]\d\d[_-]\d\d[T-]")
_IS_LOG = re.compile(r"samples_|\d{4}-\d\d-\d\dT")
_TIME = re.compile(r"(19|20)\d\d[_-]?\d\d[_-]?\d\d([T_\-]?\d\d[_\-:]?\d\d([_\-:]?\d\d)?(\.\d+)?)?")
# Names of GLUE, SuperGLUE, SQuAD, related challenge sets and other benchmarks, in file names.
_TASK = re.compile(
    r"(?<![a-z0-9])(cola|sst[_-]?2|mrpc|sts[_-]?b|qqp|qnli|rte|wnli|wic|wsc|boolq|copa|multirc|cb|record|hans|"
    r"mnli([_-](mis)?matched|[_-]mm?)?|xnli([_-][a-z]{2})?|anli([_-]?r[123])?|snli|nli|ax[_-]?[bg]|"
    r"squad([_-]?v?[12](\.[01])?)?|paws(-x)?|hellaswag|winogrande|piqa|gsm8k|mmlu|imdb)(?![a-z0-9])",
    re.IGNORECASE,
)
# Words in the names of prediction files, and of other files saved beside them.
_PREDICTIONS = {
    "prediction", "predictions", "predict", "pred", "preds", "output", "outputs", "answers", "responses",
    "generations",
}  # fmt: skip
_BESIDE = {
    "metric", "metrics", "history", "config", "configs", "args", "hparams", "hyperparameters", "params",
    "log", "logs", "loss", "losses", "curve", "curves", "summary", "state", "settings", "metadata", "info",
    "report", "timing", "confusion", "roc", "labels", "gold", "references",
}  # fmt: skip


@dataclass(frozen=True)
class SourceFile:
    """A file, and the facts in its path.

    Attributes:
      path: a table, array or log, or a folder saved by Hugging Face `datasets`.
      arm: name of the arm; empty if all files have the same.
      task: name of the task; empty if no file name has one.
      seed: seed in the path, or None.
      is_numbered: whether the seed is a number without the word "seed", which a column of seeds overrides.
      run: run of the seed, if there are several.
      split: word of a split in the path, such as `test`; empty without one.
    """

    path: Path
    arm: str = ""
    task: str = ""
    seed: int | None = None
    is_numbered: bool = False
    run: int | None = None
    split: str = ""


def name_of(path: str | Path) -> str:
    """Returns the name of a file or folder, for predictions without the name of a model or task.

    Examples:
      >>> name_of("results/base.csv.gz"), name_of("results/new.2.tsv")
      ('base', 'new.2')
    """
    location = Path(path)
    return location.name if location.is_dir() else Path(location.name.removesuffix(".gz")).stem


def name_of_all(paths: Sequence[str]) -> str:
    """Returns the name of predictions at one path, or the common start of several names.

    Examples:
      >>> name_of_all(["base.csv"]), name_of_all(["runs/ours_seed0.csv", "runs/ours_seed1.csv"])
      ('base', 'ours')
    """
    names = [name_of(path) for path in paths]
    if len(names) == 1:
        return names[0]
    starts = {_SEED.split(name)[0].strip(_BETWEEN) for name in names}
    return starts.pop() if len(starts) == 1 and starts != {""} else root_of(paths).name


def root_of(paths: Sequence[str]) -> Path:
    """Returns the common folder of paths, below which names are those of arms and seeds."""
    return Path(paths[0] if len(paths) == 1 else os.path.commonpath([*map(os.path.abspath, paths)]))


def is_known_task(name: str) -> bool:
    return _TASK.fullmatch(name) is not None


def are_seeds_of_arms(paths: Sequence[str]) -> bool:
    """Returns whether paths, for example of a shell's glob, are seeds of arms, and not one arm each.

    Examples:
      >>> are_seeds_of_arms(["a_seed0.csv", "a_seed1.csv", "b_seed0.csv", "b_seed1.csv"])
      True
      >>> are_seeds_of_arms(["a_seed0.csv", "b_seed0.csv"])
      False
    """
    names = [str(Path(path)) for path in paths]
    return all(map(_SEED.search, names)) and len({_SEED.sub("", name) for name in names}) < len(
        names
    )


def source_files(paths: Sequence[str], task: str | None = None) -> list[SourceFile]:
    """Returns the prediction files at paths, at any depth, with the facts in their paths.

    Args:
      paths: a file or folder, or several that belong together (see `are_seeds_of_arms`).
      task: the wanted task; a harness's logs of other tasks are left out.
    """
    files, others = _files_at(paths)
    if len(files) == 1 and len(paths) == 1 and Path(paths[0]).is_file():
        number = _SEED.search(files[0].name)
        return [SourceFile(files[0], seed=int(number[1]) if number else None)]
    root = root_of(paths)
    by_task = logs_by_task(files)
    if {*by_task} != {""}:
        files = logs_of_task(by_task, task, root)
    predictions = _of_predictions(files, root)
    warn_of_left_out([*others, *(file for file in files if file not in {*predictions})], str(root))
    return _with_splits(_by_seed(predictions, root), root)


def tasks_of_logs(paths: Sequence[str]) -> list[str]:
    """Returns the tasks of logs at paths; empty unless all files are logs, of several tasks."""
    by_task = logs_by_task(_files_at(paths)[0])
    return [*by_task] if len(by_task) > 1 and "" not in by_task else []


def by_name(
    sources: Sequence[SourceFile], root: Path, *, with_numbers: bool = False
) -> list[SourceFile]:
    """Returns files with columns of seeds, whose whole names are arms or tasks.

    Args:
      with_numbers: whether names that differ only in their last number are different arms, not parts of
        one arm.
    """
    names = [_text(source.path, root) for source in sources]
    stems = [f"{name.before}{name.after}" for name in map(_cut, names)]
    if not with_numbers and len({*stems}) < len(stems):
        names = stems
    arms, tasks = _split_tasks(names)
    named = [
        SourceFile(source.path, arm, task)
        for source, arm, task in zip(sources, _differing(arms), _differing(tasks), strict=True)
    ]
    return _with_splits(named, root)


def warn_of_doubtful(sources: Sequence[SourceFile], root: Path) -> None:
    """Warns about seeds that are numbers after a word such as "step"."""
    texts = [_text(source.path, root) for source in sources if source.is_numbered]
    doubtful = [text for text in texts if _NO_SEED.search(_cut(text).before)]
    if doubtful:
        console.warn(
            f"{root}: the numbers in the names of the files {', '.join(doubtful[:3])} are taken for seeds; "
            "if they are something else, write a column of seeds"
        )


# --- Which files ---------------------------------------------------------------------------------


def _files_at(paths: Sequence[str]) -> tuple[list[Path], list[Path]]:
    files: list[Path] = []
    others: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            readable, of_other_kinds = _files_in(path)
            files += readable
            others += of_other_kinds
        elif path.is_file():
            files.append(path)
        else:
            raise UserError(f"{path} does not exist; check the path")
    return files, others


def _files_in(folder: Path) -> tuple[list[Path], list[Path]]:
    for pattern in ("samples_*.jsonl", "per_instance_stats.json", "data-*.arrow"):
        files = sorted(folder.rglob(pattern))
        if files:
            return sorted({file.parent for file in files}) if "arrow" in pattern else files, []
    files = []
    others: list[Path] = []
    for file in sorted(folder.rglob("*")):
        if any(part.startswith(".") for part in file.relative_to(folder).parts):
            continue
        if file.is_symlink() and not file.exists():
            console.warn(f"{file} is left out: it is a link to a file that does not exist")
        elif file.is_file():
            (files if _is_known(file.name) else others).append(file)
    if not files:
        only = f", only {_patterns(others)}" if others else ""
        raise UserError(
            f"{folder} holds no file of predictions{only}; expected {KINDS}, with such an ending"
        )
    return files, others


def _is_known(name: str) -> bool:
    # transformers' run_glue writes tables with this name.
    return name.removesuffix(".gz").endswith(_ENDINGS) or name.startswith("predict_results_")


def _of_predictions(files: Sequence[Path], root: Path) -> list[Path]:
    """Returns the files named as predictions, or else those without the name of another kind."""
    texts = [_text(file, root) for file in files]
    firsts = {_words(text)[0] for text in texts}
    start = 1 if firsts <= _PREDICTIONS | _BESIDE else 0
    kinds = {
        file: {*_words(text)[:start], *_words(_cut(text).after)}
        for file, text in zip(files, texts, strict=True)
    }
    predictions = [file for file in files if kinds[file] & _PREDICTIONS]
    predictions = predictions or [
        file for file in files if _BY_FOLDER.match(file.name) or not kinds[file] & _BESIDE
    ]
    predictions = predictions or [*files]
    # A JSON file beside a table of the same name has its settings.
    settings = [
        file for file in predictions if file.suffix == ".json" and not _BY_FOLDER.match(file.name)
    ]
    tables = {_text(file, root) for file in predictions if file.suffix != ".json"}
    left_out = {file for file in settings if _text(file, root) in tables}
    return [file for file in predictions if file not in left_out]


def warn_of_left_out(left_out: Sequence[Path], folder: str) -> None:
    """Warns about files of a folder that are not read."""
    if left_out:
        console.warn(
            f"{folder}: {counted(len(left_out), 'file')} beside those of predictions left out: "
            f"{_patterns(left_out)}"
        )


def _patterns(files: Sequence[Path]) -> str:
    """Returns file names in short: one pattern for all seeds, with the number of files."""
    seen = Counter(
        re.sub(r"^.*?seed[ _\-=]*\d+(?=[ _\-.])", "*", file.name, flags=re.IGNORECASE)
        for file in files
    )
    shown = [f"{name} ({count})" if count > 1 else name for name, count in seen.most_common(5)]
    return ", ".join(shown) + (f" and {len(seen) - 5} more names" if len(seen) > 5 else "")


# --- What their names say ------------------------------------------------------------------------


def _text(file: Path, root: Path) -> str:
    """Returns the part of a path that may name arm, task and seed."""
    relative = Path(os.path.relpath(file, root))
    if relative == Path():
        return ""
    if _BY_FOLDER.match(relative.name):
        return relative.parent.as_posix()
    return (relative.parent / name_of(file)).as_posix()


class _Cut(NamedTuple):
    """A name split at the digits of its seed; all of it is `after` without a seed."""

    before: str
    digits: str
    after: str
    is_seed: bool  # and no other number that may be a seed


def _cut(text: str) -> _Cut:
    match = _SEED.search(text)
    is_seed = match is not None
    if match is None:
        masked = text  # of the same length, without numbers of tasks and times
        for pattern in (_TASK, _TIME):
            masked = pattern.sub(lambda hit: "x" * len(hit[0]), masked)
        match = _LAST_NUMBER.search(masked)
    if match is None:
        return _Cut("", "", text, is_seed)
    return _Cut(text[: match.start()], match[1], text[match.end() :], is_seed)


def _by_seed(files: Sequence[Path], root: Path) -> list[SourceFile]:
    names = [_cut(_text(file, root)) for file in files]
    without = [
        os.path.relpath(file, root)
        for file, name in zip(files, names, strict=True)
        if not name.is_seed
    ]
    if not without:
        return _split_at(files, names)
    if len(without) == len(files):
        numbers = {name.digits for name in names}
        if numbers == {""} or all(_IS_LOG.match(file.name) for file in files):
            # Several models, such as Llama-2 and Llama-3, or logs of different times.
            return [*map(SourceFile, files)]
        if "" not in numbers and (len(files) == 1 or len(numbers) > 1):
            numbered = _split_at(files, names)
            seeds = Counter(source.arm for source in numbered)
            if len(seeds) == 1 or min(seeds.values()) > 1:
                return numbered
    raise UserError(
        f"{root}: found {counted(len(files), 'file')}, and {len(without)} whose names do not say which seed "
        f"they are of ({', '.join(without[:2])}); rename them or their folders so that each holds its seed, "
        "such as seed_0"
    )


def _split_at(files: Sequence[Path], names: Sequence[_Cut]) -> list[SourceFile]:
    """Returns files with the text before each seed as the arm, and the text after it as the task."""
    arms, named = _split_tasks([name.before for name in names])
    endings = [name.after for name in names]
    runs = [_RUN.search(ending) for ending in endings]
    numbers: list[int | None] = [None] * len(files)
    if all(runs) and len({run[1] for run in runs if run}) > 1:
        numbers = [int(run[1]) for run in runs if run]
        endings = [_RUN.sub("", ending, count=1) for ending in endings]
    tasks = [_joined(pair) for pair in zip(_differing(named), _differing(endings), strict=True)]
    only = {_plain(ending.rpartition("/")[2]) for ending in endings}
    if not any(tasks) and len(only) == 1 and all(map(is_known_task, only)):
        tasks = [*only] * len(files)
    return [
        SourceFile(file, arm, task, int(name.digits), not name.is_seed, run)
        for file, arm, task, name, run in zip(
            files, _differing(arms), tasks, names, numbers, strict=True
        )
    ]


def _with_splits(sources: Sequence[SourceFile], root: Path) -> list[SourceFile]:
    """Notes words such as `test`; if files have several, they name splits, and no arms or tasks."""
    words = (filter(SPLITS.fullmatch, _words(_text(each.path, root))) for each in sources)
    named = [
        replace(each, split=next(found, "")) for each, found in zip(sources, words, strict=True)
    ]
    if len({each.split for each in named} - {""}) < 2:
        return named
    others = [replace(each, split=each.split or each.task or "others") for each in named]
    return [
        replace(each, arm=_without(each.arm, each.split), task=_without(each.task, each.split))
        for each in others
    ]


def _without(name: str, word: str) -> str:
    """Returns a name, or the parts of a path, without a word."""
    pattern = rf"(?<![^/{_BETWEEN}]){re.escape(word)}(?![^/{_BETWEEN}])"
    parts = re.sub(pattern, "", name, flags=re.IGNORECASE).split("/")
    return _joined([part.strip(_BETWEEN) for part in parts])


def _split_tasks(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    tasks = [_TASK.search(text) for text in texts]
    if len({task[0] for task in tasks if task}) < 2 or not all(tasks):
        return [*texts], [""] * len(texts)
    return [_TASK.sub("", text, count=1) for text in texts], [task[0] for task in tasks if task]


def _differing(texts: Sequence[str]) -> list[str]:
    """Returns the differing parts of names, without words for predictions and times."""
    parts = [[_plain(part) for part in text.split("/")] for text in texts]
    if len({len(names) for names in parts}) == 1:
        varying = [len({*column}) > 1 for column in zip(*parts, strict=True)]
        parts = [
            [name for name, varies in zip(names, varying, strict=True) if varies] for names in parts
        ]
    joined = [*map(_joined, parts)]
    return joined if len({*joined}) > 1 else [""] * len(joined)


def _plain(part: str) -> str:
    part = _TIME.sub("", part)
    for word in _words(part):
        if word in {*_PREDICTIONS, "results"}:
            part = _without(part, word)
    return re.sub(rf"([{_BETWEEN}])[{_BETWEEN}]+", r"\1", part).strip(_BETWEEN)


def _words(text: str) -> list[str]:
    return re.split(rf"[/{_BETWEEN}]+", text.lower())


_joined: Callable[[Sequence[str]], str] = lambda parts: "/".join(filter(None, parts))  # noqa: E731
