"""`python -m evaluate.import_predictions`: predictions that others published as run directories."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tqdm import tqdm

from multiberts.evaluate.imports.coreference_groups import read_coreference_groups
from multiberts.evaluate.imports.hans_predictions import read_hans
from multiberts.evaluate.imports.imported_runs import ImportedRun, write_imported
from multiberts.evaluate.imports.instability_release import read_instability
from multiberts.evaluate.imports.multiberts_release import read_release, read_squad_file
from multiberts.evaluate.imports.sizes_release import read_sizes
from multiberts.runs.errors import UserError

LAYOUTS = ("multiberts", "multiberts_coreference", "model_sizes", "squad", "hans", "instability")


def import_predictions(
    *,
    run_dir: str,
    layout: str,
    source: str,
    questions: str | None = None,
    occupations: str | None = None,
    procedure: str | None = None,
    pretrain_seed: int = 0,
    finetune_seed: int = 0,
    task: str | None = None,
) -> list[Path]:
    """Writes a run directory below run_dir for every run, as fine-tuning leaves them.

    Every later stage then takes them: `python -m evaluate`, `python -m stats`, `read_predictions`.
    Runs that are there already are left alone.

    Args:
      run_dir: the folder for the runs.
      layout: `multiberts` (folder GLUE or SQuAD of the release), `multiberts_coreference` (its folder
        coref), `model_sizes` (a task's folder of Zhong et al., 2021), `squad` (a prediction file of the
        official scorer), `hans` (prediction files of HANS), `instability` (the .npz of ten seeds).
      source: the folder or file.
      questions: `squad`, `hans`: the official file of the evaluation set.
      occupations: `multiberts_coreference`: Winogender's occupations-stats.tsv, where it is not in source.
      procedure: `squad`: what the run shall be called; its file name unless given.
      pretrain_seed, finetune_seed: `squad`: of the run.
      task: `model_sizes`: the task's name, where the folder's does not say it.

    Returns:
      The run directories, those that were there already included.

    Raises:
      UserError: a file is missing or not as its layout has it.
    """
    directories = []
    for run in tqdm(
        _runs(
            layout, source, questions, occupations, procedure, pretrain_seed, finetune_seed, task
        ),
        desc="importing",
        unit="run",
        disable=None,
    ):
        write_imported(run_dir, layout, run)
        directories.append(Path(run_dir) / run.name)
    return directories


def _runs(
    layout: str,
    source: str,
    questions: str | None,
    occupations: str | None,
    procedure: str | None,
    pretrain_seed: int,
    finetune_seed: int,
    task: str | None,
) -> Iterable[ImportedRun]:
    if layout in ("squad", "hans") and questions is None:
        raise UserError(
            f"layout {layout} needs import_predictions.questions; give the official evaluation set"
        )
    match layout:
        case "multiberts":
            return read_release(source)
        case "multiberts_coreference":
            return read_coreference_groups(source, occupations)
        case "model_sizes":
            return read_sizes(source, task)
        case "squad":
            name = procedure or Path(source).name.removesuffix(".gz").removesuffix(".json")
            run = read_squad_file(
                source,
                str(questions),
                procedure=name,
                pretrain_seed=pretrain_seed,
                finetune_seed=finetune_seed,
            )
            return [run]
        case "hans":
            return read_hans(source, str(questions))
        case "instability":
            return read_instability(source)
    raise UserError(
        f"import_predictions.layout is {layout!r}, expected one of {', '.join(LAYOUTS)}"
    )
