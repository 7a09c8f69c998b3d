"""Does every command end in the same bytes, however often and however it is stopped?

    python -m benchmarks.stress --stops=200 --folder=stress

First each command runs undisturbed. Then each stop runs a command, meets a fault at a random moment, runs
the same command again without faults, and compares all outputs byte for byte. Faults: SIGKILL, SIGTERM,
SIGSTOP (of the command, or of one of its workers), a full disk (files may not grow past a random size), and
a clock that is up to a day off before the process is killed. Every stop is noted in FOLDER/stops.jsonl:
stopped itself, the same command continues with the next stop. About half a minute per stop on two cores.
Exits with 1 if a byte differs, or if a fault ends in a traceback.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from multiberts.benchmarks.stress_resume import ARGUMENTS, make_corpora
from multiberts.runs import console
from multiberts.runs.directory import DONE, read_done
from multiberts.runs.files import remove

FAULTS = ("SIGKILL", "SIGTERM", "SIGSTOP", "full disk", "skewed clock")
SAME = "same bytes"
# A stopped process is left so for this time, unless its launcher ends it before.
_SECONDS_STOPPED = 3.0
_SILENT_SECONDS = 20
_SECONDS_AT_MOST = 1800

_SMALL = {"batch_size": 16, "num_epochs": 2, "sequence_length": 32, "compile_step": False}
_PRETRAIN = {
    **ARGUMENTS,
    "procedure": "base",
    "num_steps": 200,
    "checkpoint_steps": [0, 100],
    "compile_step": False,
}
# Of those whose function has another name.
_NAMES = {"score": "evaluate", "report": "stats"}
# Python reads it at its start: its clock, not the kernel's, is off.
_CLOCK = """
import os, time
_true, _offset = time.time, float(os.environ["STRESS_CLOCK_OFFSET"])
time.time = lambda: _true() + _offset
"""


def commands(folder: Path) -> dict[str, dict[str, Any]]:
    """Returns the Gin bindings of every command, on inputs below a folder that are made where missing."""
    inputs = folder / "inputs"
    if not (inputs / "held_out" / DONE).is_file():
        inputs.mkdir(parents=True, exist_ok=True)
        make_corpora(inputs)
    pairs = inputs / "pairs"
    pairs.mkdir(exist_ok=True)
    for split, count in (("train", 64), ("dev", 24)):
        rows = ["index\tsentence1\tsentence2\tlabel"]
        for number in range(count):
            verb, label = [("sees", "entailment"), ("finds", "not_entailment")][number % 2]
            rows.append(f"{number}\tThe cat likes the dog .\tThe king {verb} the tree .\t{label}")
        (pairs / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    prepare = {
        "sources": [str(inputs / "trained.txt")],
        "source_format": "sentences",
        "vocabulary_size": 50,
        "sequence_length": 32,
        "dupe_factor": 2,
    }
    corpora = {
        "corpus": str(inputs / "trained"),
        "evaluation_corpus": str(inputs / "held_out"),
    }
    checkpoints = {
        f"seed_{seed}": str(folder / "whole" / f"pretrain_{seed}" / "out/checkpoints/step_200")
        for seed in (3, 4)
    }
    predictions = str(folder / "whole" / "sweep" / "out")
    task = {**_SMALL, "data_dir": str(pairs)}
    comparison = {"name": "base alone", "base": {"procedure": "base"}, "design": "single"}
    pretrain = {name: value for name, value in _PRETRAIN.items() if name != "pretrain_seed"}

    def bound(stage: str, values: Mapping[str, Any]) -> dict[str, Any]:
        return {f"{stage}.{name}": value for name, value in values.items()}

    first = {"task": "pair", "checkpoint": checkpoints["seed_3"], "learning_rate": 1e-3}
    return {
        "prepare": bound("prepare", {"run_dir": "out", **prepare}),
        **{
            f"pretrain_{seed}": bound(
                "pretrain", {"run_dir": "out", **corpora, **pretrain, "pretrain_seed": seed}
            )
            for seed in (3, 4)
        },
        "finetune": bound("finetune", {"run_dir": "out", **first, **task}),
        "sweep": {
            **bound("sweep", {"root": "out", "checkpoints": checkpoints, "tasks": ["pair"]}),
            **bound("sweep", {"learning_rates": [1e-3], "finetune_seeds": [0, 1]}),
            **bound("pair/finetune", task),
        },
        "score": bound("score", {"run_dir": "out", "predictions": predictions}),
        "report": {
            **bound("report", {"run_dir": "out", "predictions": predictions, "title": "stress"}),
            **bound("report", {"comparisons": [comparison], "num_bootstrap": 50}),
        },
        "launch": {
            **bound("launch", {"root": "out", "corpora": ["text"], "procedures": ["base"]}),
            **bound("launch", {"tasks": ["pair"], "pretrain_seeds": [0, 1]}),
            **bound("launch", {"finetune_seeds": [0, 1], "learning_rates": [1e-3]}),
            **bound("prepare", prepare),
            **bound("pretrain", {**pretrain, "evaluate_every_steps": None, "num_steps": 60}),
            **bound("pretrain", {"checkpoint_steps": [0]}),
            **bound("pair/finetune", task),
            **bound("run", {"workers": 1, "silent_seconds": _SILENT_SECONDS}),
        },
    }


def start(
    command: str, bindings: Mapping[str, Any], place: Path, *, offset: float = 0.0, limit: int = -1
) -> subprocess.Popen[bytes]:
    """Starts a command in a session of its own.

    Args:
      command: one of `commands`.
      bindings: its Gin bindings.
      place: the folder that it runs in, with the file `log` for what it prints.
      offset: of its clock, in seconds.
      limit: bytes that a file may have at most; -1: any number.
    """
    name = _NAMES.get(command, command.partition("_")[0])
    flags = [f"--gin_param={key} = {value!r}" for key, value in bindings.items()]
    program = "from multiberts.runs.command import main; main()"
    environment = dict(os.environ)
    if offset:
        clock = place.parent / "clock"
        clock.mkdir(exist_ok=True)
        (clock / "sitecustomize.py").write_text(_CLOCK)
        known = [str(clock), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment |= {
            "PYTHONPATH": os.pathsep.join(known),
            "STRESS_CLOCK_OFFSET": str(offset),
        }
    with open(place / "log", "ab") as log:
        # Its log alone may grow: pipes have no limit.
        process = subprocess.Popen(
            [sys.executable, "-c", program, name, *flags],
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if limit >= 0 else log,
            stderr=subprocess.STDOUT if limit >= 0 else log,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, -1)),
        )
    return process


def outputs(place: Path) -> dict[str, bytes]:
    """Returns every DONE marker below a place, and every file that one lists, by name."""
    found = {}
    for marker in sorted((place / "out").rglob(DONE)):
        for file in [marker, *(marker.parent / name for name in read_done(marker.parent))]:
            found[str(file.relative_to(place))] = file.read_bytes()
    return found


def meet(
    command: str,
    bindings: Mapping[str, Any],
    place: Path,
    draw: random.Random,
    facts: dict[str, Any],
) -> dict[str, Any]:
    """Runs a command into a fault.

    Args:
      command: one of `commands`.
      bindings: its Gin bindings.
      place: the folder that it runs in.
      draw: draws the fault and its moment.
      facts: seconds that the undisturbed command took, and bytes of its largest output.

    Returns:
      What was done and what came of it, for `stops.jsonl`.
    """
    fault = draw.choice(FAULTS)
    moment = draw.uniform(0.0, 1.05) * facts["seconds"]
    offset = draw.choice((-86400.0, -91.0, 91.0, 86400.0)) if fault == "skewed clock" else 0.0
    limit = int(facts["bytes"] * draw.random()) if fault == "full disk" else -1
    process = start(command, bindings, place, offset=offset, limit=limit)
    if fault == "full disk":
        said, _ = process.communicate(timeout=_SECONDS_AT_MOST)
        with open(place / "log", "ab") as log:
            log.write(said)
        is_one_line = said.count(b"error: ") == 1 and b"Traceback" not in said
        status = process.returncode
        verdict = "clear" if status == 0 or (status == 2 and is_one_line) else "unclear"
        return {"fault": fault, "status": status, "verdict": verdict, "limit": limit}
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(moment)
    if process.poll() is None and fault == "SIGSTOP":
        family = [
            psutil.Process(process.pid),
            *psutil.Process(process.pid).children(recursive=True),
        ]
        with contextlib.suppress(psutil.Error):
            chosen = draw.choice(family)
            chosen.suspend()
            time.sleep(_SECONDS_STOPPED)
            if chosen.pid == process.pid:
                # A stopped command cannot go on by itself: it is woken, or killed.
                (chosen.resume if draw.random() < 0.5 else chosen.kill)()
    elif process.poll() is None:
        process.send_signal(signal.SIGTERM if fault == "SIGTERM" else signal.SIGKILL)
    status = process.wait(_SECONDS_AT_MOST)
    expected = {"SIGTERM": (0, 75, -15), "SIGSTOP": (0, -9)}.get(fault, (0, -9))
    verdict = "clear" if status in expected else "unclear"
    return {"fault": fault, "moment": round(moment, 2), "status": status, "verdict": verdict}


def undisturbed(folder: Path, given: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Runs every command once without faults, those that ran before excepted; returns facts by command."""
    facts = {}
    for command, bindings in given.items():
        place = folder / "whole" / command
        note = place / "facts.json"
        if not note.is_file():
            remove(place)
            place.mkdir(parents=True)
            began = time.monotonic()
            if start(command, bindings, place).wait(_SECONDS_AT_MOST):
                raise RuntimeError((place / "log").read_text()[-2000:])
            seconds = time.monotonic() - began
            largest = max(map(len, outputs(place).values()))
            note.write_text(json.dumps({"seconds": seconds, "bytes": largest}))
        facts[command] = json.loads(note.read_text())
        console.report(f"{command}: {facts[command]['seconds']:.1f} s undisturbed")
    return facts


def table(stops: list[dict[str, Any]]) -> str:
    """Returns how many stops of each command and fault there were, and how many ended well."""
    counts: collections.Counter[tuple[str, str, bool]] = collections.Counter(
        (stop["command"], stop["fault"], is_good(stop)) for stop in stops
    )
    lines = [f"{'command':<10}" + "".join(f"{fault:>14}" for fault in FAULTS)]
    for command in dict.fromkeys(stop["command"] for stop in stops):
        cells = []
        for fault in FAULTS:
            good, bad = (counts[command, fault, is_well] for is_well in (True, False))
            cells.append(f"{f'{good} of {good + bad}':>14}")
        lines.append(f"{command:<10}" + "".join(cells))
    good = sum(map(is_good, stops))
    return "\n".join([*lines, f"{good} of {len(stops)} stops ended in the same bytes, clearly"])


def is_good(stop: Mapping[str, Any]) -> bool:
    """Returns whether a stop ended in the same bytes, and its fault in nothing but a line."""
    return stop["verdict"] == "clear" and stop["end"] == SAME


def main() -> int:
    """Makes the stops that are missing and prints the table; returns 1 if one of them ended badly."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--stops", type=int, default=200)
    parser.add_argument("--folder", type=Path, default=Path("stress"))
    parser.add_argument("--stops_seed", type=int, default=0)
    options = parser.parse_args()
    folder = options.folder.absolute()
    given = commands(folder)
    facts = undisturbed(folder, given)
    notes = folder / "stops.jsonl"
    stops = [json.loads(line) for line in notes.read_text().splitlines()] if notes.is_file() else []
    kept = [name for name in given if name != "pretrain_4"]
    while len(stops) < options.stops:
        number = len(stops)
        command, draw = kept[number % len(kept)], random.Random(f"{options.stops_seed} {number}")
        place = folder / "stopped"
        remove(place)
        place.mkdir()
        stop = {"stop": number, "command": command.partition("_")[0]}
        stop |= meet(command, given[command], place, draw, facts[command])
        status = start(command, given[command], place).wait(_SECONDS_AT_MOST)
        wanted, found = outputs(folder / "whole" / command), outputs(place)
        names = sorted(wanted.keys() | found.keys())
        differing = [name for name in names if wanted.get(name) != found.get(name)]
        left = [str(path.relative_to(place)) for path in place.rglob("*.unfinished")]
        problems = {"exit status": status, "differ": differing, "left": left}
        stop["end"] = "; ".join(f"{k}: {v}" for k, v in problems.items() if v) or SAME
        stops.append(stop)
        with open(notes, "a") as stream:
            stream.write(json.dumps(stop) + "\n")
        console.report(json.dumps(stop))
        if not is_good(stop):
            (folder / f"log_{number}").write_bytes((place / "log").read_bytes())
    console.report(table(stops))
    return int(not all(map(is_good, stops)))


if __name__ == "__main__":
    sys.exit(main())
