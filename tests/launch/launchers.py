"""Plans of quick stages, and launchers of them in processes of their own; for tests of the launcher."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dask.config
import psutil

from multiberts.launch.markers.attempts import attempts_of
from multiberts.launch.markers.failures import describe
from multiberts.launch.plan.experiment import Experiment, make_plan
from multiberts.launch.plan.planned_run import Output, PlannedRun
from multiberts.launch.running import run_plan
from multiberts.launch.workers.leftovers import VARIABLE
from multiberts.runs.command_line.command import run_main
from multiberts.tests.tools import warm
from multiberts.tests.tools.patience import PATIENCE

HERE = Path(__file__).resolve().parent
# Of runs that are planned and never made.
MODEL = {
    "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 1, "intermediate_size": 16,
    "max_position_embeddings": 32,
}  # fmt: skip
# Of an experiment whose runs take a second each: a made-up world, its corpus, and seeds of a tiny model.
TINY: dict[str, dict[str, Any]] = {
    "make_world": {"world_seed": 0, "num_documents": 60},
    "prepare": {
        "sources": ["world:corpus.txt"], "source_format": "sentences", "vocabulary_size": 200,
        "sequence_length": 32, "dupe_factor": None,
    },
    "pretrain": {
        "model": {**MODEL, "hidden_size": 32, "num_attention_heads": 2}, "sequence_length": 32,
        "max_predictions_per_sequence": 5, "batch_size": 8, "gradient_shards": 2,
        "learning_rate": 1e-3, "warmup_steps": 3, "num_steps": 10, "compile_step": False,
        "tensorboard": False,
    },
}  # fmt: skip


def gin_lines(**stages: dict[str, Any]) -> str:
    return "".join(
        f"{stage}.{name} = {value!r}\n"
        for stage, given in stages.items()
        for name, value in given.items()
    )


def small_plan(**changes: Any) -> list[PlannedRun]:
    """A plan of two seeds of a small model, each fine-tuned three times."""
    model = {"hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2}
    arguments: dict[str, Any] = {
        "world": {},
        "corpora": {"text": {"sources": ["world:corpus.txt"], "source_format": "sentences"}},
        "procedures": {"base": {"model": model, "num_steps": 1000, "batch_size": 8}},
        "pretrain_seeds": [0, 1],
        "tasks": {"facts": {"data_dir": "world:facts"}},
        "learning_rates": [1e-3],
        "finetune_seeds": [0, 1, 2],
    }
    return make_plan(Experiment(**{**arguments, **changes}))


def mark_done(root: Path, *runs: PlannedRun) -> None:
    for run in runs:
        (root / run.path).mkdir(parents=True, exist_ok=True)
        (root / run.path / "DONE").write_text("{}")


def launch(content: str) -> None:
    """Builds the same plan as `quick_run` does, from JSON, and launches it as the command would."""
    dask.config.refresh()  # as a new process reads its environment
    settings, runs = json.loads(content), {}
    for stage, path, parameters, parents in settings.pop("runs"):
        runs[path] = PlannedRun(
            stage, path, parameters, tuple(runs[parent] for parent in parents), path, path
        )

    def main(_arguments: Sequence[str]) -> None:
        failures = run_plan(plan=list(runs.values()), **settings)
        print(describe(failures), file=sys.stderr)
        sys.exit(bool(failures))

    sys.argv[1:] = []
    run_main(main)


def quick_run(stage: str, path: str, *parents: PlannedRun, **parameters: Any) -> PlannedRun:
    if parents and stage == "note":
        parameters["inputs"] = [Output(parent) for parent in parents]
    return PlannedRun(f"quick_stages:{stage}", path, parameters, parents, path, path)


class Launcher:
    """A launcher in a process and session of its own, which is a fork of one that imports no more."""

    def __init__(
        self,
        root: Path,
        plan: Sequence[PlannedRun],
        *,
        max_bytes_of_file: int = resource.RLIM_INFINITY,
        **settings: Any,
    ):
        self.root = root
        # Not below the test's own folder, whose path is too long for sockets.
        self.scratch = Path(tempfile.mkdtemp())
        # As launchers before have left it.
        self._begun = {run.path: self._beginnings(run) for run in plan}
        runs = []
        for run in plan:
            # Runs within the parameters are not JSON: here parents only come before.
            plain = {name: value for name, value in run.parameters.items() if name != "inputs"}
            runs.append((run.stage, run.path, plain, [parent.path for parent in run.parents]))
        content = json.dumps({"runs": runs, "root": str(root), "workers": 2, **settings})
        path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        given = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(self.scratch)}
        limit = {"max_bytes_of_file": max_bytes_of_file}
        self.process = warm.Process(f"{__name__}:launch", [content], environment=given, **limit)

    def wait_for(self, *runs: PlannedRun) -> None:
        """Waits until these runs have begun (once more, if they had) as they say in their logs."""

        def all_have_begun() -> bool:
            return all(self._beginnings(run) > self._begun[run.path] for run in runs)

        found = wait_until(lambda: self.process.poll() is not None or all_have_begun())
        assert found and self.process.poll() is None, self.process.communicate()
        self._begun.update({run.path: self._beginnings(run) for run in runs})

    def _beginnings(self, run: PlannedRun) -> int:
        log = self.root / "logs" / f"{run.path.replace('/', '-')}.log"
        return log.read_text().count("begun") if log.exists() else 0

    def end(self) -> tuple[int, str]:
        """Waits for the end; returns the status and what it printed on standard error."""
        _, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, errors

    def processes(self) -> list[psutil.Process]:
        """All processes of its session that run."""
        found = []
        for process in psutil.process_iter():
            try:
                is_ours = os.getsid(process.pid) == self.process.pid
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return found

    def worker_of(self, run: PlannedRun) -> psutil.Process:
        return psutil.Process(attempts_of(self.root)[run.path][-1].pid)


def outcomes(root: Path, path: str) -> list[str | None]:
    """How the attempts at a run ended, in order; None: it has not."""
    return [attempt.outcome for attempt in attempts_of(root).get(path, [])]


def files_with_times(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def marked_process(mark: str) -> subprocess.Popen[bytes]:
    """A process with a launch's mark, once the kernel shows it: a moment after `Popen` returns."""
    process = subprocess.Popen(["sleep", "300"], env={**os.environ, VARIABLE: mark})
    assert wait_until(lambda: VARIABLE in psutil.Process(process.pid).environ())
    return process
