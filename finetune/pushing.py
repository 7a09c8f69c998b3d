"""`multiberts push`: publishes checkpoints, predictions and a report.

It makes a folder per repository of the Hugging Face Hub, each with its card:

    models/<name>/    a checkpoint in the Hugging Face layout
    predictions/      a dataset: predictions.parquet and report/
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from multiberts.bert.checkpoint.checkpoint import CARD, HUGGING_FACE, Checkpoint
from multiberts.bert.checkpoint.conversion import convert_checkpoint
from multiberts.evaluate.exporting import export
from multiberts.evaluate.prediction_files.run_file import find_runs
from multiberts.runs import console
from multiberts.runs.directory import DONE, LOCK, RunDirectory, read_done
from multiberts.runs.errors import UserError
from multiberts.runs.files import remove, sha256_of_file, write_atomically

MODELS, PREDICTIONS, REPORT = "models", "predictions", "report"
PARQUET = "predictions.parquet"
_NAME = r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?"
_REPOSITORY = re.compile(rf"{_NAME}/{_NAME}")
_MEANINGS = {
    "task": "name of the task",
    "evaluation_set": "name of the evaluation set",
    "epochs": "of training before the predictions; null: at its end",
    "procedure": "how the encoder was pre-trained",
    "pretrain_seed": "seed of pre-training",
    "data_seed": "seed of the order of the pre-training data",
    "step": "of pre-training",
    "learning_rate": "of fine-tuning",
    "finetune_seed": "seed of fine-tuning",
    "example_id": "the example, the same in every run",
    "label": "the true label, a class's number; null where unknown",
    "prediction": "the predicted label, a class's number or a score",
    "scores": "the model's outputs per class",
}


def push(
    *,
    run_dir: str,
    checkpoints: Mapping[str, str] | None = None,
    predictions: str | Sequence[str] = (),
    report: str | None = None,
    repository: str | None = None,
    private: bool = True,
) -> None:
    """Makes a folder per repository of the Hugging Face Hub, and uploads them if `repository` is given.

    Outputs in run_dir: `models/<name>/`, a checkpoint with its card; `predictions/`, a dataset with its card,
    all predictions in one Parquet file, and the report. The predictions include the texts of the examples:
    check whether their licence allows publication.

    Uploading needs a token: `hf auth login`, or `HF_TOKEN` in the environment. The same command resumes an
    interrupted upload.

    Args:
      run_dir: the directory of this run.
      checkpoints: directories of checkpoints by their published names, such as `seed_0`.
      predictions: folder (or folders) with finished fine-tuning runs, at any depth.
      report: directory of a report (`multiberts stats`), published with the predictions.
      repository: `<owner>/<name>`: the repositories are `<owner>/<name>-<name of the checkpoint>` and
        `<owner>/<name>-predictions`; None: no upload.
      private: whether new repositories are visible to their owner only.
    """
    named = dict(checkpoints or {})
    folders = [predictions] if isinstance(predictions, str) else list(predictions)
    if repository is not None and not _REPOSITORY.fullmatch(repository):
        raise UserError(f"push.repository is {repository!r}, expected <owner>/<name>; correct it")
    if not named and not folders:
        raise UserError("push has neither push.checkpoints nor push.predictions; give at least one")
    for name in named:
        if not re.fullmatch(_NAME, name) or name == PREDICTIONS:
            raise UserError(
                f"push.checkpoints has the name {name!r}, expected letters, digits, '-', '_' and '.', such "
                f"as seed_0, and not {PREDICTIONS!r}; correct it"
            )
    if report is not None and not folders:
        raise UserError("push.report goes with the predictions; give push.predictions, too")
    listed = read_done(report) if report is not None and Path(report, DONE).is_file() else {}
    if report is not None and "index.html" not in listed:
        raise UserError(
            f"{report} is not a finished report; give the run_dir of `multiberts stats`"
        )
    # A link in a stranger's report would publish a file of the user's.
    for name, entry in listed.items():
        file = Path(report or "", name)
        if not file.is_file() or sha256_of_file(file) != entry["sha256"]:
            raise UserError(f"{file} is not the file that {DONE} lists; make the report again")
    upload = None if repository is None else _Upload(repository, private)
    models = {name: Checkpoint.open(path) for name, path in named.items()}
    runs = [run for folder in folders for run, _ in find_runs(folder)]
    if folders and not runs:
        raise UserError(
            f"{', '.join(folders)} holds no finished fine-tuning run; give another folder"
        )
    run = RunDirectory(
        run_dir,
        stage="push",
        parameters={"names": sorted(named)},
        inputs={
            **{f"checkpoint_{name}": model for name, model in models.items()},
            "predictions": runs or None,
            "report": report,
        },
        call={"checkpoints": named, "predictions": folders, "report": report},
    )
    if not run.done:
        with run:
            for name, model in models.items():
                convert_checkpoint(model.directory, run.path / MODELS / name, HUGGING_FACE)
            if folders:
                folder = run.path / PREDICTIONS
                folder.mkdir(parents=True, exist_ok=True)
                export(path=str(folder / PARQUET), predictions=folders)
                for name in listed:
                    (folder / REPORT / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(Path(report or "") / name, folder / REPORT / name)
                card = _card(Path(run_dir).name, folder / PARQUET, report)
                write_atomically(folder / CARD, card)
            outputs = [run.path / MODELS / name for name in named]
            # Markers of the conversions: this run's marker covers their files.
            for folder in outputs:
                for marker in (DONE, LOCK):
                    remove(folder / marker)
            outputs += [run.path / PREDICTIONS] if folders else []
            files = sorted(path for each in outputs for path in each.rglob("*") if path.is_file())
            run.finish([str(file.relative_to(run.path)) for file in files])
    if upload is None:
        console.report(f"{run.path} is complete; give repository=<owner>/<name> to upload it")
        return
    for name in named:
        upload(run.path / MODELS / name, name, "model")
    if folders:
        upload(run.path / PREDICTIONS, PREDICTIONS, "dataset")


def _card(title: str, file: Path, report: str | None) -> str:
    import pyarrow.parquet

    columns = ["task", "evaluation_set", "procedure", "pretrain_seed"]
    frame = pyarrow.parquet.read_table(file, columns=columns).to_pandas()
    counts = frame.groupby(columns[:3], dropna=False)["pretrain_seed"].agg(["nunique", "size"])
    lines = [
        "---",
        "tags:",
        "- multiberts",
        "configs:",
        "- config_name: default",
        f"  data_files: {file.name}",
        "---",
        "",
        f"# {title}: predictions",
        "",
        f"{len(frame):,} predictions of fine-tuned models, one row per run and example, written by "
        "`multiberts push`.",
        "The texts come from the data of the tasks, under their licences.",
        "",
        "| task | evaluation set | procedure | pre-training seeds | rows |",
        "|---|---|---|---:|---:|",
        *(
            f"| {task} | {name} | {procedure} | {seeds} | {rows:,} |"
            for (task, name, procedure), (seeds, rows) in zip(
                counts.index, counts.itertuples(index=False), strict=True
            )
        ),
        "",
        *([] if report is None else [f"`{REPORT}/index.html` is the report on them.", ""]),
        "| column | type | meaning |",
        "|---|---|---|",
        *(
            f"| {column.name} | {column.type} | {_MEANINGS.get(column.name, 'of some sets')} |"
            for column in pyarrow.parquet.read_schema(file)
        ),
        "",
    ]
    return "\n".join(lines)


class _Upload:
    """Uploads folders to repositories of one owner."""

    def __init__(self, repository: str, private: bool):
        try:
            import huggingface_hub
        except ImportError as error:
            raise UserError(
                f"push.repository needs huggingface_hub ({error}); pip install huggingface-hub, "
                "or leave it out"
            ) from error
        if huggingface_hub.get_token() is None:
            raise UserError(
                "push.repository needs a token of the Hub, and there is none; log in with `hf auth login`, "
                "set HF_TOKEN, or leave it out to make the folder alone"
            )
        self._repository, self._private = repository, private

    def __call__(self, folder: Path, name: str, kind: str) -> None:
        """Uploads one folder; creates the repository if necessary."""
        import huggingface_hub
        from huggingface_hub import constants, errors

        repository = f"{self._repository}-{name}"
        # The bases cover all errors of the library's HTTP client, and OSError.
        failures: Any = errors.HfHubHTTPError.__bases__
        api = huggingface_hub.HfApi()
        try:
            api.create_repo(repository, repo_type=kind, private=self._private, exist_ok=True)
            done = api.upload_folder(
                repo_id=repository,
                folder_path=folder,
                repo_type=kind,
                commit_message="Upload by multiberts push",
            )
        except (errors.HfHubHTTPError, *failures, ValueError) as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise UserError(
                f"{folder} was not uploaded to {repository} at {constants.ENDPOINT} ({reason}); it is "
                "complete on disk: check the token's rights and the name, and run the same command again"
            ) from error
        console.report(f"{folder} -> {kind} {repository}, commit {done.oid}")
