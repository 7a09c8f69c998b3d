"""Imports predictions of others as runs: the command `import`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from multiberts.evaluate.imports.coreference_groups import read_coreference_groups
from multiberts.evaluate.imports.imported_runs import ImportedRun, write_imported
from multiberts.evaluate.imports.multiberts_release import read_release, read_squad_file
from multiberts.evaluate.imports.other_programs import read_other_programs
from multiberts.evaluate.imports.sizes_release import read_sizes
from multiberts.evaluate.prediction_files.run_file import find_runs
from multiberts.evaluate.readers.columns import ColumnNames
from multiberts.runs.console import ProgressBar
from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import PathLike
from multiberts.runs.parameters import Seed, takes_fields_of


@dataclass(frozen=True, kw_only=True)
class PredictionImport(ColumnNames):
    """Settings of `import_predictions`.

    Attributes:
      run_dir: the folder for the runs.
      layout: `files` (anything that `multiberts compare` reads: tables, `.npz`, logs of other programs, files
        of `multiberts export`), `multiberts` (folder GLUE or SQuAD of the release),
        `multiberts_coreference` (its folder coref), `model_sizes` (a task's folder of Zhong et al.,
        2021), `squad` (a prediction file of the official scorer).
      source: the folder or file.
      questions: `squad`: the official file of the evaluation set.
      procedure: `files`, `squad`: the procedure of the runs; the file's name unless given.
      pretrain_seed: `squad`: pre-training seed of the run.
      finetune_seed: `squad`: fine-tuning seed of the run.
      task: `model_sizes`: the task's name, if it is not the folder's; `files`: one of several tasks, or a
        name for the task of files that name none.
      metric: `files`: metric of the predictions; by default that of a log, `mean` for scores and `accuracy`
        for classes.
      arm: `files`: column that names the model, method or condition of each row; `none` if there is none.
      seed: `files`: column of seeds; `columns` if each seed has its own column.
      run: `files`: column that distinguishes several runs of one seed.
      example: `files`: column of example ids.
      prediction: `files`: column of predictions.
      score: `files`: column of scores per example; for logs of a harness, the metric.
      label: `files`: column of labels.
      cluster: `files`: column of groups of dependent examples.
      where: `files`: rows to import, `split=test` or `split=test,epoch=last`.
    """

    run_dir: str
    layout: str
    source: str
    questions: str | None = None
    procedure: str | None = None
    pretrain_seed: Seed = 0
    finetune_seed: Seed = 0
    task: str | None = None
    metric: str | None = None


@takes_fields_of(PredictionImport)
def import_predictions(settings: PredictionImport) -> list[Path]:
    """Writes a run directory below run_dir for every run, as fine-tuning writes them.

    `multiberts evaluate`, `multiberts stats` and `read_predictions` can read these runs. Existing runs are
    not changed.

    Returns:
      The run directories, including existing ones.

    Raises:
      UserError: a file is missing or has another layout.
    """
    layout, source, task = settings.layout, settings.source, settings.task
    if layout == "squad" and settings.questions is None:
        raise UserError(
            "layout squad needs import_predictions.questions; give the official evaluation set"
        )
    given = str(settings.questions)
    name = settings.procedure or Path(source).name.removesuffix(".gz").removesuffix(".json")
    seeds = (settings.pretrain_seed, settings.finetune_seed)
    readers: dict[str, Callable[[], Iterable[ImportedRun]]] = {
        "files": lambda: read_other_programs(
            source, settings, task, settings.metric, settings.procedure
        ),
        "multiberts": lambda: read_release(source),
        "multiberts_coreference": lambda: read_coreference_groups(source),
        "model_sizes": lambda: read_sizes(source, task),
        "squad": lambda: [read_squad_file(source, given, name, *seeds)],
    }
    if layout not in readers:
        raise UserError(
            f"import_predictions.layout is {layout!r}, expected one of {', '.join(readers)}"
        )
    directories = []
    for run in ProgressBar(readers[layout](), desc="importing", unit="run"):
        write_imported(settings.run_dir, layout, run)
        directories.append(Path(settings.run_dir) / run.name)
    return directories


def describe_imports(run_dir: PathLike) -> str:
    """Returns the numbers of runs per task in a folder, and the columns that were read, in one line.

    Examples:
      >>> describe_imports("runs")
      'runs: 2 runs of RTE; read from an example'
    """
    runs = [content for _, content in find_runs(run_dir)]
    tasks = sorted({content["task"] for content in runs})
    sources = sorted({content["source"] for content in runs if content.get("source")})
    more = f" and {len(sources) - 3} more" if len(sources) > 3 else ""
    read = f"; read from {'; '.join(sources[:3])}{more}" if sources else ""
    return f"{run_dir}: {counted(len(runs), 'run')} of {', '.join(tasks)}{read}"
