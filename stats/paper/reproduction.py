"""The tables and figures of the MultiBERTs paper from finished fine-tuning runs, as one command.

    python -m stats.paper --gin_param='paper.run_dir = "results/paper"' \\
        --gin_param='paper.predictions = "results"'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.identity import Identity, Values
from multiberts.stats.bootstrap.conclusion import DrawOrder
from multiberts.stats.paper.catalogue import Roles
from multiberts.stats.paper.comparisons import Bootstrap
from multiberts.stats.paper.folder import check_base, paper_report
from multiberts.stats.report.dumps import dumps_of_runs
from multiberts.stats.report.selection import Run

REPORT = "report"


def _settle(parameters: Values, inputs: Values) -> None:
    parameters["parts"] = dict(parameters["parts"] or {})


IDENTITY = Identity(inputs=("predictions",), settle=_settle)


def paper(
    *,
    run_dir: str,
    predictions: str | Sequence[str],
    base: str = "base",
    incremental: str = "cda_incr",
    full: str = "cda_full",
    original: str = "original",
    extra: str = "base_extra_seeds",
    early_step: int | None = None,
    parts: Mapping[str, str] | None = None,
    num_bootstrap: int = 1000,
    bootstrap_seed: int = 42,
    confidence: float = 0.95,
    draws: DrawOrder = "published",
) -> None:
    """Writes `run_dir/report/` with `index.md`, `tables/`, `figures/` and `comparisons.csv`.

    What cannot be made from the runs at hand is left out, and `index.md` says why.

    Args:
      run_dir: of this report.
      predictions: folder (or folders) with finished fine-tuning runs, at any depth.
      base, incremental, full, original, extra: which procedure plays which part of the paper
        (see `stats.paper.catalogue.Roles`).
      early_step: the earlier step that the base's last is compared with; None: half of the last.
      parts: by evaluation set, the coordinate of its examples (or `label`) by which scores are
        drawn apart, such as {"hans": "label"}.
      num_bootstrap, bootstrap_seed, confidence, draws: of every comparison (see
        `stats.compare`); the published library's draws unless said.

    Raises:
      UserError: there are no runs, none of the base, or a file is damaged.

    Reference: Sellam et al., "The MultiBERTs" (ICLR 2022).
    """
    parameters, _ = IDENTITY.of(locals())
    from multiberts.evaluate.dumps.run_file import find_runs

    if not 0 < confidence < 1 or num_bootstrap < 1 or draws not in get_args(DrawOrder):
        raise UserError(
            f"found confidence {confidence}, num_bootstrap {num_bootstrap} and draws {draws!r}, "
            "expected a number between 0 and 1, at least 1, and keyed or published"
        )
    folders = [predictions] if isinstance(predictions, str) else list(predictions)
    runs = [Run(*found) for folder in folders for found in find_runs(folder)]
    if not runs:
        raise UserError(f"{', '.join(folders)}: found no finished run; run the fine-tuning first")
    roles = Roles(base, incremental, full, original, extra)
    bootstrap = Bootstrap(
        num_bootstrap=num_bootstrap,
        bootstrap_seed=bootstrap_seed,
        confidence=confidence,
        draws=draws,
    )
    directory = RunDirectory(
        run_dir,
        stage="paper",
        parameters=parameters,
        inputs={"predictions": [str(run.directory) for run in runs]},
    )
    if directory.done:
        return
    check_base([str(run.facts["procedure"]) for run in runs], roles)
    dumps, choices = dumps_of_runs(runs)
    with directory:
        target = directory.path / REPORT
        made = paper_report(
            dumps,
            target,
            roles=roles,
            bootstrap=bootstrap,
            early_step=early_step,
            parts=parts,
            choices=choices,
        )
        files = sorted(path for path in target.rglob("*") if path.is_file())
        directory.finish([str(path.relative_to(directory.path)) for path in files])
    print(f"{target / 'index.md'}: {len(made.written)} tables and figures")
    for name, reason in made.left_out.items():
        print(f"  left out {name}: {reason}")
