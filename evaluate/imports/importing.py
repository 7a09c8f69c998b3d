"""Imports predictions that others published: the command `import-predictions`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from multiberts.evaluate.imports.coreference_groups import read_coreference_groups
from multiberts.evaluate.imports.hans_predictions import read_hans
from multiberts.evaluate.imports.imported_runs import ImportedRun, write_imported
from multiberts.evaluate.imports.instability_release import read_instability
from multiberts.evaluate.imports.multiberts_release import read_release, read_squad_file
from multiberts.evaluate.imports.sizes_release import read_sizes
from multiberts.runs.console import ProgressBar
from multiberts.runs.errors import UserError


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
    """Writes a run directory below run_dir for every run, as fine-tuning writes them.

    Every later stage then reads them: `multiberts evaluate`, `multiberts stats`, `read_predictions`.
    Runs that are there already are left as they are.

    Args:
      run_dir: the folder for the runs.
      layout: `multiberts` (folder GLUE or SQuAD of the release), `multiberts_coreference` (its folder
        coref), `model_sizes` (a task's folder of Zhong et al., 2021), `squad` (a prediction file of the
        official scorer), `hans` (prediction files of HANS), `instability` (the .npz of ten seeds).
      source: the folder or file.
      questions: `squad`, `hans`: the official file of the evaluation set.
      occupations: `multiberts_coreference`: Winogender's occupations-stats.tsv, where it is not in source.
      procedure: `squad`: the procedure of the run; the file's name unless given.
      pretrain_seed: `squad`: of the run.
      finetune_seed: `squad`: of the run.
      task: `model_sizes`: the task's name, where it is not the folder's.

    Returns:
      The run directories, those that were there already included.

    Raises:
      UserError: a file is missing or not in its layout.
    """
    if layout in ("squad", "hans") and questions is None:
        raise UserError(
            f"layout {layout} needs import_predictions.questions; give the official evaluation set"
        )
    given = str(questions)
    name = procedure or Path(source).name.removesuffix(".gz").removesuffix(".json")
    seeds = (pretrain_seed, finetune_seed)
    readers: dict[str, Callable[[], Iterable[ImportedRun]]] = {
        "multiberts": lambda: read_release(source),
        "multiberts_coreference": lambda: read_coreference_groups(source, occupations),
        "model_sizes": lambda: read_sizes(source, task),
        "squad": lambda: [read_squad_file(source, given, name, *seeds)],
        "hans": lambda: read_hans(source, given),
        "instability": lambda: read_instability(source),
    }
    if layout not in readers:
        raise UserError(
            f"import_predictions.layout is {layout!r}, expected one of {', '.join(readers)}"
        )
    directories = []
    for run in ProgressBar(readers[layout](), desc="importing", unit="run"):
        write_imported(run_dir, layout, run)
        directories.append(Path(run_dir) / run.name)
    return directories
