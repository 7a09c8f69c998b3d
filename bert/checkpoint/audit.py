"""Checks that checkpoints have the seeds and steps that they state: `multiberts checkpoint audit`.

Weights of one training run stay correlated across checkpoints; weights of independent initialisations are
uncorrelated. So a few thousand numbers of the same matrices distinguish runs.
"""

from __future__ import annotations

import base64
import hashlib
import io
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from multiberts.bert.checkpoint.checkpoint import natural_order, read_provenance
from multiberts.bert.checkpoint.hub import HUB, STEP, revisions_of
from multiberts.bert.checkpoint.sampling import (
    Source,
    StoredTensor,
    folder_source,
    has_optimizer_state,
    sample,
    shared_matrices,
    stored_tensors,
    weight_files,
)
from multiberts.runs import console
from multiberts.runs.errors import UserError, counted
from multiberts.runs.figure_style import canvas
from multiberts.runs.files import write_atomically
from multiberts.runs.web_page.rendering import render

# A folder with one of these files counts as a checkpoint, even without weights.
_CONFIGURATIONS = ("config.json", "bert_config.json")
_TOKENIZERS = ("vocab.txt", "tokenizer.json", "vocab.json", "merges.txt", "spiece.model")
_PICKLED = re.compile(r"pytorch_model.*\.bin")
# Correlations of independent models scatter by 1/sqrt(numbers read) around a few hundredths, due to shared
# data. Checkpoints of one run have larger correlations.
_DEVIATIONS, _LEAST = 5.0, 0.05
# Report a distance between two checkpoints if it differs from the other seeds' by this factor.
_UNUSUAL = 3.0
_LEAST_SEEDS = 3
_MOST_LISTED = 4
_COLOURS = {"sound": "#009E73", "fault": "#D55E00", "missing": "#BBBBBB"}


@dataclass
class _Checkpoint:
    run: str
    step: int | None
    source: Source
    seed: int | None = None  # as its record states
    tensors: dict[str, StoredTensor] = field(default_factory=dict)
    values: list[np.ndarray] = field(default_factory=list)
    directions: np.ndarray | None = None  # one row per matrix, centred and scaled to length 1

    @property
    def name(self) -> str:
        return _named(self.run, self.step)

    @property
    def cell(self) -> tuple[str, int | None]:
        return self.run, self.step


def _named(run: str, step: int | None) -> str:
    return run if step is None else f"{run} step {step:,}"


@dataclass(frozen=True)
class Finding:
    """A fault that the audit found.

    Attributes:
      kind: one of `files`, `twice`, `path`, `initialisation`, `tokeniser`, `configuration`, `optimiser`.
      where: affected runs and steps, for the picture.
    """

    kind: str
    text: str
    where: tuple[tuple[str, int | None], ...]


def audit_checkpoints(*, paths: Sequence[str], html: str | None = None) -> int:
    """Reports whether checkpoints have the seeds and steps that they state, from parts of their bytes.

    Finds missing, truncated and duplicate files; equal steps; steps that do not continue their run; seeds
    that share an initialisation; unusually large or small distances between checkpoints; different
    configurations and tokenisers; optimiser state that some checkpoints lack.

    Args:
      paths: folders with checkpoints at any depth, or `hub:<repository>`; its branches with a step in their
        name are read in byte ranges, without a download.
      html: path of a page to write, with the verdict and a plot of runs by steps.

    Returns:
      0 if no fault is found, else 1.
    """
    checkpoints = [each for path in paths for each in _checkpoints_in(path, len(paths) > 1)]
    findings = _file_faults(checkpoints)
    readable = [checkpoint for checkpoint in checkpoints if checkpoint.tensors]
    if readable:
        # Read parts of the same matrices of each checkpoint; this also reveals cut files and NaN.
        names = shared_matrices({each.name: each.tensors for each in readable})
        for checkpoint in console.ProgressBar(readable, unit="checkpoint"):
            try:
                checkpoint.values = sample(checkpoint.source, checkpoint.tensors, names)
            except (ValueError, OSError) as error:
                findings.append(_fault("files", [checkpoint], "cannot", f"be read: {error}"))
                continue
            rows = [values.astype(np.float64) for values in checkpoint.values]
            if not all(np.isfinite(row).all() for row in rows):
                fault = "numbers that are NaN or infinite"
                findings.append(_fault("files", [checkpoint], "holds", fault))
                continue
            # Normalise, so that each matrix has the same weight whatever its scale.
            centred = [row - row.mean() for row in rows]
            checkpoint.directions = np.concatenate(
                [row / (np.linalg.norm(row) or 1.0) / len(rows) ** 0.5 for row in centred]
            )
        sampled = [checkpoint for checkpoint in readable if checkpoint.directions is not None]
        groups = defaultdict(list)
        for checkpoint in sampled:
            content = b"".join(values.tobytes() for values in checkpoint.values)
            groups[hashlib.sha256(content).digest()].append(checkpoint)
        findings += [
            _fault("twice", group, "are", "equal in every byte that was read")
            for group in groups.values()
            if len(group) > 1
        ]
        findings += _weight_faults([first for first, *_ in groups.values()])
    num_runs = len({checkpoint.run for checkpoint in checkpoints})
    num_read = sum(checkpoint.source.num_read for checkpoint in checkpoints)
    size = sum(sum(checkpoint.source.sizes.values()) for checkpoint in checkpoints)
    verdict = counted(len(findings), "fault") if findings else "no fault was found"
    lines = [
        f"{counted(len(checkpoints), 'checkpoint')} of {counted(num_runs, 'run')}: {verdict}. "
        f"{num_read:,} of {size:,} bytes were read ({num_read / max(size, 1):.2%}).",
        *(f"- {finding.text}" for finding in findings),
    ]
    if html is not None:
        page = render(
            Path(__file__).with_name("audit.html.j2"),
            {},
            title="Audit of checkpoints",
            verdict=lines[0],
            findings=findings,
            picture=_picture(checkpoints, findings),
            made_with={
                "checkpoints": ", ".join(sorted({each.source.label for each in checkpoints}))
            },
        )
        write_atomically(Path(html), page)
        lines.append(f"Written: {html}")
    console.report("\n".join(lines))
    return 1 if findings else 0


def _checkpoints_in(path: str, is_one_of_several: bool) -> Iterator[_Checkpoint]:
    """Yields the checkpoints of a folder or of a repository, with their runs and steps."""
    if path.startswith(HUB):
        run, _ = _run_and_step(path.removeprefix(HUB))
        for revision, source in revisions_of(path):
            yield _Checkpoint(run, _run_and_step(f"{path}/{revision}")[1], source)
        return
    root = Path(path)
    if not root.is_dir():
        raise UserError(
            f"{path} is not a folder; give a folder with checkpoints, or hub:<owner>/<name>"
        )
    folders = sorted(
        {
            file.parent
            for file in root.rglob("*")
            if weight_files([file.name])
            or file.name in _CONFIGURATIONS
            or _PICKLED.fullmatch(file.name)
            if file.is_file()
        }
    )
    if not folders:
        raise UserError(f"{path} holds no checkpoint; give a folder with checkpoints at any depth")
    for folder in folders:
        # Equal folder names in two paths are two runs, and each step may be given as its own path.
        is_whole_path = is_one_of_several or folder == root
        run, step = _run_and_step(
            (folder if is_whole_path else folder.relative_to(root)).as_posix()
        )
        provenance = read_provenance(folder)
        yield _Checkpoint(
            run or folder.resolve().parent.name,
            step if provenance["step"] is None else provenance["step"],
            folder_source(folder),
            provenance["pretrain_seed"],
        )


def _run_and_step(name: str) -> tuple[str, int | None]:
    steps = [*STEP.finditer(f"/{name}")]
    run = re.sub("/checkpoints(?=/|$)", "", STEP.sub("", f"/{name}")).strip("/-_.")
    return run, int(steps[-1][1]) * (1000 if steps[-1][2] else 1) if steps else None


def _fault(kind: str, checkpoints: Sequence[_Checkpoint], verb: str, rest: str) -> Finding:
    """Returns a finding that several checkpoints share; `verb` is the plural form."""
    shown = [each.name for each in checkpoints[:_MOST_LISTED]]
    if len(checkpoints) > len(shown):
        shown.append(f"{len(checkpoints) - len(shown)} more")
    *others, last = shown
    names = f"{', '.join(others)} and {last}" if others else last
    verb = verb if others else {"have": "has", "lack": "lacks"}.get(verb, verb)
    return Finding(kind, f"{names} {verb} {rest}.", tuple(each.cell for each in checkpoints))


def _file_faults(checkpoints: Sequence[_Checkpoint]) -> list[Finding]:
    """Reads the headers; reports missing, damaged or differing files."""
    findings = []
    for checkpoint in checkpoints:
        names = [*checkpoint.source.sizes]
        if not weight_files(names):
            pickled = any(map(_PICKLED.fullmatch, names))
            fault = (
                "only pickled weights, which cannot be read in part" if pickled else "no weights"
            )
            findings.append(_fault("files", [checkpoint], "have", fault))
            continue
        try:
            checkpoint.tensors = stored_tensors(checkpoint.source)
        except (ValueError, OSError) as error:
            findings.append(_fault("files", [checkpoint], "cannot", f"be read: {error}"))
    findings += _missing_steps(checkpoints)
    findings += _unlike(checkpoints, _TOKENIZERS, "tokeniser")
    findings += _unlike(checkpoints, _CONFIGURATIONS, "configuration")
    by_state: dict[str, list[_Checkpoint]] = {"no": [], "an": []}
    for each in checkpoints:
        if each.tensors:
            by_state["an" if has_optimizer_state(each.source, each.tensors) else "no"].append(each)
    fault, few = min(by_state.items(), key=lambda item: len(item[1]))
    if few:
        findings.append(
            _fault("optimiser", few, "have", f"{fault} optimiser state, unlike the others")
        )
    return findings


def _missing_steps(checkpoints: Sequence[_Checkpoint]) -> Iterator[Finding]:
    """Reports missing steps that most other runs have, and duplicate checkpoints."""
    steps: dict[str, Counter[int | None]] = defaultdict(Counter)
    for checkpoint in checkpoints:
        steps[checkpoint.run][checkpoint.step] += 1
    usual = Counter(step for counts in steps.values() for step in counts if step is not None)
    for run, counts in steps.items():
        for step, number in usual.items():
            if step not in counts and 2 * number > len(steps):
                text = f"{run} has no step {step:,}, which most runs have."
                yield Finding("files", text, ((run, step),))
        for repeated, number in counts.items():
            if number > 1:
                text = f"{_named(run, repeated)} is there {number} times, in different places."
                yield Finding("twice", text, ((run, repeated),))


def _unlike(
    checkpoints: Sequence[_Checkpoint], names: Sequence[str], kind: str
) -> Iterator[Finding]:
    """Reports checkpoints whose small file is missing or differs from most."""
    for name in names:
        # Compare hashes of one server (Git or SHA-256, so not across servers); folders have none.
        digests: dict[str, str] = {}
        contents: dict[int, str | None] = {}
        for each in checkpoints:
            source = each.source
            key = source.hashes.get(name, source.label)
            if name in source.sizes and key not in digests:
                content = source.read(name, 0, source.sizes[name])
                digests[key] = hashlib.sha256(content).hexdigest()
            contents[id(each)] = digests[key] if name in source.sizes else None
        (usual, count), *others = Counter(contents.values()).most_common()
        if not others or usual is None:
            continue
        is_missing = [each for each in checkpoints if contents[id(each)] is None]
        differing = [each for each in checkpoints if contents[id(each)] not in (None, usual)]
        if is_missing:
            yield _fault(kind, is_missing, "lack", f"{name}, which {count} have")
        if differing:
            yield _fault(kind, differing, "have", f"another {name} than {count} others")


def _weight_faults(checkpoints: Sequence[_Checkpoint]) -> Iterator[Finding]:
    """Reports seeds that share an initialisation, and checkpoints that do not continue their run."""
    if len(checkpoints) < 2:
        return
    directions = np.stack([each.directions for each in checkpoints if each.directions is not None])
    correlations = directions @ directions.T  # [checkpoints, checkpoints]
    # Correlations of independent models stay below this limit.
    limit = max(_LEAST, _DEVIATIONS / directions.shape[1] ** 0.5)
    by_run = defaultdict(list)
    for place in sorted(range(len(checkpoints)), key=lambda place: _order(checkpoints[place].step)):
        by_run[checkpoints[place].run].append(place)

    for (run, indices), (other_run, other_indices) in itertools.combinations(by_run.items(), 2):
        # First checkpoints, because they are nearest to the initialisation.
        first, second = (checkpoints[each[0]] for each in (indices, other_indices))
        # Procedures that are paired by their seeds share the initialisation on purpose.
        is_recorded = first.seed is not None and first.seed == second.seed
        if (correlation := correlations[indices[0], other_indices[0]]) > limit and not is_recorded:
            text = (
                f"{run} and {other_run} share an initialisation, or one continues the other: their weights "
                f"at {first.name} and {second.name} correlate with {correlation:.2f}."
            )
            yield Finding("initialisation", text, (first.cell, second.cell))

    lengths: dict[tuple[int | None, int | None], dict[str, float]] = defaultdict(dict)
    for before, after in itertools.chain.from_iterable(map(itertools.pairwise, by_run.values())):
        start, end = checkpoints[before], checkpoints[after]
        correlation = float(correlations[before, after])
        if correlation > limit:
            lengths[start.step, end.step][end.run] = 1 - correlation
            continue
        text = f"not continue {start.name}: their weights do not correlate"
        of_others = np.array([each.run != end.run for each in checkpoints])
        with_others = np.where(of_others, correlations[after], -1)
        nearest = int(with_others.argmax())
        if with_others[nearest] > limit:
            text += f", but with those of {checkpoints[nearest].name} ({with_others[nearest]:.2f})"
        yield _fault("path", [end], "does", text)

    for steps, of_runs in lengths.items():
        usual = float(np.median([*of_runs.values()]))
        start_name, end_name = (
            "the one without a step" if step is None else f"step {step:,}" for step in steps
        )
        for run, length in of_runs.items():
            if len(of_runs) < _LEAST_SEEDS or usual / _UNUSUAL <= length <= usual * _UNUSUAL:
                continue
            how = "far" if length > usual else "little"
            text = (
                f"{run} moved unusually {how} from {start_name} to {end_name}: 1 - correlation is "
                f"{length:.3g}, and {usual:.3g} in the median of the runs."
            )
            yield Finding("path", text, ((run, steps[1]),))


def _order(step: int | None) -> tuple[bool, int]:
    return step is None, step or 0


def _picture(checkpoints: Sequence[_Checkpoint], findings: Sequence[Finding]) -> str:
    """Returns a PNG as a data address: a row for each run, a column for each step."""
    faults = {cell for finding in findings for cell in finding.where}
    there = {each.cell for each in checkpoints}
    runs = sorted({run for run, _ in there}, key=natural_order)
    steps = sorted({step for _, step in there | faults}, key=_order)
    with canvas(2 + 0.45 * max(len(steps), 8), 1.2 + 0.3 * len(runs)) as (figure, axes):
        for (row, run), (column, step) in itertools.product(enumerate(runs), enumerate(steps)):
            # Colour and sign, so that the picture is readable without colours.
            cell = (run, step)
            kind = "missing" if cell not in there else "fault" if cell in faults else "sound"
            axes.scatter(column, row, s=110, marker="s", color=_COLOURS[kind])
            if kind == "fault":
                axes.annotate(
                    "!", (column, row), ha="center", va="center", color="white", weight="bold"
                )
        axes.set_xticks(range(len(steps)), ["" if step is None else f"{step:,}" for step in steps],
                        rotation=90)  # fmt: skip
        axes.set_yticks(range(len(runs)), runs)
        axes.set_xlim(-0.6, max(len(steps), 8) - 0.4)
        axes.set_ylim(len(runs) - 0.4, -0.6)
        axes.set_xlabel("step")
        for kind, text in (
            ("sound", "nothing found"),
            ("fault", "! a fault"),
            ("missing", "not there"),
        ):
            axes.scatter([], [], s=60, marker="s", color=_COLOURS[kind], label=text)
        figure.legend(loc="outside upper left", ncols=3)
        content = io.BytesIO()
        figure.savefig(content, format="png", metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
