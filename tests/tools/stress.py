"""Does every command end in the same bytes, however often and however it is stopped?

    python -m multiberts.tests.tools.stress --stops=200 --folder=stress

First each command runs undisturbed. Then each stop runs a command, meets a fault at a random moment, runs
the same command again without faults, and compares all outputs byte for byte. Faults: SIGKILL, SIGTERM,
SIGHUP, SIGSTOP, a quota (no file may grow past a random size), a full disk (a file system of a random size,
which root alone may mount: others go without), a clock that is up to a day off before SIGKILL, for `launch` a
second launcher, which must be refused while the first goes on, and for runs that can lie in a bucket a
deletion: of the local copy, of one of its files, or of the file system that it lies on; what was pushed must
stay. SIGKILL and SIGSTOP meet the command or one of the processes that it started. A command is a fork of
this process; those that it starts are Pythons of their own. Every stop is noted in FOLDER/stops.jsonl:
stopped itself, the same command continues with the next stop.
About five seconds of processor time per stop. Exits with 1 if a byte differs, or if a fault ends in anything
but a line. Pages name the commit of this checkout: commit nothing meanwhile.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from multiberts.runs import console
from multiberts.runs.command_line import command as command_line
from multiberts.runs.directory import CONFIG, DONE, read_done
from multiberts.runs.files import remove
from multiberts.tests.tools import warm
from multiberts.tests.tools.stress_resume import ARGUMENTS, make_corpora

TWO = "two launchers"
DELETION = "deletion"
FAULTS = (
    *("SIGKILL", "SIGTERM", "SIGHUP", "SIGSTOP", "quota", "full disk", "skewed clock", TWO),
    DELETION,
)
# Their run directory may lie in a bucket, here a folder; the local copies lie in another one.
IN_BUCKET = ("prepare", "pretrain_3", "finetune", "score", "report", "predict")
MIRRORS = "mirrors"
_SECONDS_BETWEEN_PUSHES = "0.2"
SAME = "same bytes"
CLEAR, MISSED = "clear", "missed"
# SIGKILL and a skewed clock, which ends with it: -9.
_STATUS_AFTER = {"SIGTERM": (0, 75, -15), "SIGHUP": (0, 75, -1)}
_SECONDS_STOPPED = 1.0
_SILENT_SECONDS = 20
_SECONDS_AT_MOST = 1800

_SMALL = {"batch_size": 16, "num_epochs": 2, "sequence_length": 32, "compile_step": False}
_PRETRAIN = {
    **ARGUMENTS,
    "procedure": "base",
    "num_steps": 40,
    "checkpoint_steps": [0, 20],
    "evaluate_every_steps": 20,
    "compile_step": False,
}
# The quick ones three times as often.
_QUICK = ("prepare", "score", "report", "compare", "predict")
ORDER = (*_QUICK, "pretrain_3", "finetune", *_QUICK, "sweep", *_QUICK, "launch")
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
    for name, most in (("base", 4), ("new", 5)):
        rows = ["seed,example_id,prediction,label"]
        for seed, example in itertools.product(range(5), range(100)):
            is_right = (seed + 3 * example) % 7 < most
            rows.append(f"{seed},e{example},{example % 2 ^ (not is_right)},{example % 2}")
        if not (inputs / f"{name}.csv").is_file():  # the page that compares them has their date
            (inputs / f"{name}.csv").write_text("\n".join(rows) + "\n")
    prepare = {
        "sources": [str(inputs / "trained.txt")],
        "source_format": "sentences",
        "vocabulary_size": 50,
        "sequence_length": 32,
        "dupe_factor": 20,
    }
    corpora = {
        "corpus": str(inputs / "trained"),
        "evaluation_corpus": str(inputs / "held_out"),
    }
    checkpoints = {
        f"seed_{seed}": str(folder / "whole" / f"pretrain_{seed}" / "out/checkpoints/step_40")
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
        "finetune": bound("finetune", {"run_dir": "out", **first, **task, "keep": "last"}),
        "predict": bound(
            "predict",
            {
                "run_dir": "out",
                "model": str(folder / "whole/finetune/out/model"),
                "files": [str(pairs / "dev.tsv")],
                "compile_step": False,
            },
        ),
        "sweep": {
            **bound("sweep", {"root": "out", "checkpoints": checkpoints, "tasks": ["pair"]}),
            **bound("sweep", {"learning_rates": [1e-3], "finetune_seeds": [0, 1]}),
            **bound("pair/finetune", task),
        },
        "score": bound("score", {"run_dir": "out", "predictions": predictions}),
        "report": {
            **bound("report", {"run_dir": "out", "predictions": predictions, "title": "stress"}),
            **bound("report", {"comparisons": [comparison], "n_resamples": 50}),
        },
        "compare": bound(
            "compare",
            {
                "base": str(inputs / "base.csv"),
                "experiment": [str(inputs / "new.csv")],
                "n_resamples": 200,
                **{kind: f"out/page.{kind}" for kind in ("html", "csv", "latex")},
            },
        ),
        "launch": {
            **bound("launch", {"root": "out", "corpora": ["text"], "procedures": ["base"]}),
            **bound("launch", {"tasks": ["pair"], "pretrain_seeds": [0, 1]}),
            **bound("launch", {"finetune_seeds": [0], "learning_rates": [1e-3]}),
            **bound("prepare", prepare),
            **bound("pretrain", {**pretrain, "evaluate_every_steps": None, "num_steps": 20}),
            **bound("pretrain", {"checkpoint_steps": []}),
            **bound("pair/finetune", task),
            **bound("run", {"workers": 1, "silent_seconds": _SILENT_SECONDS}),
        },
    }


def start(
    command: str,
    bindings: Mapping[str, Any],
    place: Path,
    output: int,
    *,
    offset: float = 0.0,
    limit: int = -1,
) -> warm.Process:
    """Starts a command.

    Args:
      command: one of `commands`.
      bindings: its Gin bindings.
      place: the folder that it runs in.
      output: file descriptor for what it prints.
      offset: of its clock, in seconds.
      limit: bytes that a file may have at most; -1: any number.
    """
    name = _NAMES.get(command, command.partition("_")[0])
    flags = [f"--gin_param={key} = {value!r}" for key, value in bindings.items()]

    environment = {
        **os.environ,
        "RUNS_MIRROR": str(place / MIRRORS),
        "RUNS_PUSH_SECONDS": _SECONDS_BETWEEN_PUSHES,
    }
    if offset:
        clock = place.parent / "clock"
        clock.mkdir(exist_ok=True)
        (clock / "sitecustomize.py").write_text(_CLOCK)
        environment["STRESS_CLOCK_OFFSET"] = str(offset)
        known = filter(None, [str(clock), os.environ.get("PYTHONPATH")])
        environment["PYTHONPATH"] = os.pathsep.join(known)
    return warm.Process(
        f"{__spec__.name}:call_command", [[name, *flags]], place, kind=warm.TENSORFLOW,
        environment=environment, stdout=output, stderr=output, max_bytes_of_file=limit,
    )  # fmt: skip


def call_command(arguments: Sequence[str]) -> None:
    """In a process of its own: the command, by the clock that the environment asks for."""
    if "STRESS_CLOCK_OFFSET" in os.environ:
        # This process has started already; those that it starts read it themselves.
        exec(_CLOCK, {})
    command_line.main(arguments)


def wait(process: warm.Process, seconds: float = _SECONDS_AT_MOST) -> None:
    """Waits for its end at most so long."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


@contextlib.contextmanager
def small_disk(place: Path, size: int) -> Iterator[None]:
    """Mounts a file system of `size` bytes on a folder, which may grow afterwards; `free` unmounts it."""
    mount = ["mount", "-t", "tmpfs", "tmpfs", str(place), "-o"]
    subprocess.run([*mount, f"size={size}"], check=True)
    try:
        yield
    finally:
        subprocess.run([*mount, "remount,size=0"], check=True)  # 0: no limit


def free(place: Path) -> None:
    """Removes a folder, and the file systems that are mounted on it."""
    for mounted in (place / MIRRORS, place):
        while mounted.is_mount():
            subprocess.run(["umount", str(mounted)], check=True)
    remove(place)


def in_bucket(bindings: Mapping[str, Any], place: Path) -> dict[str, Any]:
    """Returns the bindings of a command with its run directory in a bucket, the folder `out`."""
    url = f"file://{place / 'out'}"
    return {name: url if name.endswith(".run_dir") else value for name, value in bindings.items()}


def run_to_end(
    command: str,
    bindings: Mapping[str, Any],
    place: Path,
    limit: int = -1,
    disk: int | None = None,
) -> tuple[int | None, str]:
    """Runs a command, on a disk of `disk` bytes if given; see `start`.

    Returns:
      Its exit status, and what it printed, which the file `log` of the folder gets, too.
    """
    # A pipe may grow where a file may not.
    reading, writing = os.pipe()
    with contextlib.nullcontext() if disk is None else small_disk(place, disk):
        process = start(command, bindings, place, writing, limit=limit)
        os.close(writing)
        with open(reading) as stream:
            printed = stream.read()
        process.wait()
    with open(place / "log", "a") as log:
        log.write(printed)
    return process.returncode, printed


def run_twice(
    command: str, bindings: Mapping[str, Any], place: Path, moment: float
) -> dict[str, Any]:
    """Runs a command, and after `moment` seconds of processor time the same command beside it.

    Returns:
      As `meet`: all is well where the first ends as if it were alone and the second is refused in a line.
    """
    logs = [place / name for name in ("log", "log of the second")]
    with open(logs[0], "ab") as log:
        first = start(command, bindings, place, log.fileno())
    while first.poll() is None and seconds_of(family_of(first)) < moment:
        wait(first, 0.05)
    has_met = first.poll() is None
    with open(logs[1], "ab") as log:
        second = start(command, bindings, place, log.fileno())
    wait(second)
    wait(first)
    printed = [log.read_text() for log in logs]
    is_refused = second.returncode == 2 and printed[1].count("error: ") == 1
    # The first may have ended, or not have begun, when the second looked: then one of them did all.
    is_well = {first.returncode, second.returncode} in ({0}, {0, 2})
    is_clear = is_well and (is_refused or second.returncode == 0 or first.returncode == 2)
    verdict = "unclear" if not is_clear or "Traceback" in "".join(printed) else CLEAR
    return {
        "moment": round(moment, 2),
        "status": [first.returncode, second.returncode],
        "verdict": verdict if has_met else MISSED,
    }


def run_with_deletion(
    command: str, bindings: Mapping[str, Any], place: Path, moment: float, draw: random.Random
) -> dict[str, Any]:
    """Runs a command in a bucket, and removes its local copy, or a part of it, beneath it.

    Returns:
      As `meet`: all is well where the bucket keeps configuration and checkpoints that it had, and the command
      ends as one that was asked to stop, or with a line where it was just writing what was removed.
    """
    mirrors, bucket = place / MIRRORS, place / "out"
    copy = mirrors / "file" / str(bucket).strip("/")
    kinds = ["one file", "the copy", "all copies", *["the mount"] * (os.geteuid() == 0)]
    what = draw.choice(kinds)
    mirrors.mkdir()
    if what == "the mount":
        # Private, or the command refuses it.
        mount = ["mount", "-t", "tmpfs", "-o", "mode=700", "tmpfs", str(mirrors)]
        subprocess.run(mount, check=True)
    with open(place / "log", "ab") as log:
        process = start(command, in_bucket(bindings, place), place, log.fileno())
    while process.poll() is None and (
        seconds_of(family_of(process)) < moment or not (copy / CONFIG).is_file()
    ):
        wait(process, 0.01)
    has_met, pushed = process.poll() is None, _kept_in(bucket)
    if what == "the mount":
        subprocess.run(["umount", "--lazy", str(mirrors)], check=True)
    else:
        files = sorted(file for file in copy.rglob("*") if file.is_file()) or [copy]
        chosen = {"one file": draw.choice(files), "the copy": copy, "all copies": mirrors}[what]
        subprocess.run(["rm", "-rf", str(chosen)], check=False)
        what = str(chosen.relative_to(place))
    wait(process)
    printed = (place / "log").read_text()
    is_line = process.returncode == 2 and printed.count("error: ") == 1
    is_clear = process.returncode in (0, 75) or is_line
    lost = sorted(pushed - _kept_in(bucket))
    return {
        "moment": round(moment, 2),
        "removed": what,
        "status": process.returncode,
        "lost": lost,
        "verdict": MISSED
        if not has_met
        else CLEAR
        if is_clear and not lost and "Traceback" not in printed
        else "unclear",
    }


def _kept_in(bucket: Path) -> set[str]:
    """Returns configuration and checkpoints in a bucket, which no run removes."""
    found = [bucket / CONFIG, *(bucket / "checkpoints").rglob("*")]
    return {str(file.relative_to(bucket)) for file in found if file.is_file()}


def seconds_of(family: Sequence[psutil.Process]) -> float:
    """Returns the seconds of processor time that processes and their ended children took."""
    total = 0.0
    for process in family:
        with contextlib.suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])
    return total


def family_of(process: warm.Process) -> list[psutil.Process]:
    """Returns a process and all that it and its children have started; none where it has ended."""
    try:
        parent = psutil.Process(process.pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def outputs(place: Path) -> dict[str, bytes]:
    """Returns every DONE marker below a place, and every file that one lists, by name; of a command that
    writes files and no marker, these.
    """
    pages = (place / "out").glob("page.*")
    found = {str(file.relative_to(place)): file.read_bytes() for file in pages}
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
      facts: seconds of processor time that the undisturbed command took, and bytes of its largest output
        and of all.

    Returns:
      What was done and what came of it, for `stops.jsonl`; the verdict is MISSED where the command had
      ended before the fault.
    """
    is_possible = {
        TWO: command == "launch",
        "full disk": os.geteuid() == 0,
        DELETION: command in IN_BUCKET,
    }
    fault = draw.choice([name for name in FAULTS if is_possible.get(name, True)])
    moment = draw.random() * facts["seconds"]
    if fault == TWO:
        return {"fault": fault, **run_twice(command, bindings, place, moment)}
    if fault == DELETION:
        return {"fault": fault, **run_with_deletion(command, bindings, place, moment, draw)}
    if fault in ("quota", "full disk"):
        is_disk = fault == "full disk"
        # At least a page of memory, of which a file system is made.
        size = max(1 << 12, int(facts["total" if is_disk else "bytes"] * draw.random()))
        given: dict[str, Any] = {"disk" if is_disk else "limit": size}
        status, printed = run_to_end(command, bindings, place, **given)
        has_met = status != 0
        is_expected = status == 2 and printed.count("error: ") == 1
        stop: dict[str, Any] = given
    else:
        offset = draw.choice((-86400.0, -91.0, 91.0, 86400.0)) if fault == "skewed clock" else 0.0
        with open(place / "log", "ab") as log:
            process = start(command, bindings, place, log.fileno(), offset=offset)
        has_met = False
        while process.poll() is None and not has_met:
            # Processor time: seconds say little where others use the machine, too.
            wait(process, min(0.05, facts["seconds"] / 50))
            family = family_of(process)
            if seconds_of(family) >= moment:
                with contextlib.suppress(psutil.Error):
                    harm(fault, family, draw)
                    has_met = True
        wait(process)
        status, printed = process.returncode, (place / "log").read_text()
        is_expected = status in _STATUS_AFTER.get(fault, (0, -9))
        stop = {"moment": round(moment, 2)}
    is_clear = is_expected and "Traceback" not in printed
    verdict = MISSED if not has_met else CLEAR if is_clear else "unclear"
    return {"fault": fault, **stop, "status": status, "verdict": verdict}


def harm(fault: str, family: Sequence[psutil.Process], draw: random.Random) -> None:
    """Sends a command, or one of the processes that it started, a signal.

    Args:
      fault: one of `FAULTS` that is a signal or a clock.
      family: the command's process first.
      draw: draws the process.

    Raises:
      psutil.Error: the process had ended.
    """
    if fault == "SIGTERM":
        family[0].terminate()
        return
    if fault == "SIGHUP":
        # As the end of a connection: all that have not left the command's group.
        os.killpg(family[0].pid, signal.SIGHUP)
        return
    chosen = draw.choice(family)
    if fault != "SIGSTOP":
        chosen.kill()
        return
    chosen.suspend()
    time.sleep(_SECONDS_STOPPED)
    # A stopped command is woken, or killed; a worker is its launcher's to end.
    if chosen == family[0]:
        (chosen.resume if draw.random() < 0.5 else chosen.kill)()


def undisturbed(folder: Path, given: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Runs every command once without faults, those that ran before excepted; returns facts by command."""
    facts = {}
    for command, bindings in given.items():
        place = folder / "whole" / command
        note = place / "facts.json"
        if not note.is_file():
            remove(place)
            place.mkdir(parents=True)
            with open(place / "log", "ab") as log:
                process = start(command, bindings, place, log.fileno())
            seconds = 0.0
            while process.poll() is None:
                wait(process, 0.05)
                seconds = max(seconds, seconds_of(family_of(process)))
            if process.returncode:
                raise RuntimeError((place / "log").read_text()[-2000:])
            sizes = [*map(len, outputs(place).values())]
            known = {"seconds": seconds, "bytes": max(sizes), "total": sum(sizes)}
            note.write_text(json.dumps(known))
        facts[command] = json.loads(note.read_text())
        console.report(
            f"{command}: {facts[command]['seconds']:.1f} s of processor time undisturbed"
        )
    return facts


def table(stops: Sequence[Mapping[str, Any]]) -> str:
    """Returns how many stops of each command and fault ended in the same bytes, of how many, in Markdown."""
    counts: collections.Counter[tuple[str, str, bool]] = collections.Counter()
    for stop in stops:
        for command in (stop["command"], "all"):
            for fault in (stop["fault"], "all"):
                counts[command, fault, is_good(stop)] += 1
    columns = [*FAULTS, "all"]
    lines = [f"| command | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    for command in [*dict.fromkeys(stop["command"] for stop in stops), "all"]:
        cells = []
        for fault in columns:
            good, bad = (counts[command, fault, is_well] for is_well in (True, False))
            cells.append(f"{good} of {good + bad}")
        lines.append(f"| {command} | {' | '.join(cells)} |")
    return "\n".join(lines)


def is_good(stop: Mapping[str, Any]) -> bool:
    """Returns whether a stop ended in the same bytes, and its fault in nothing but a line."""
    return stop["verdict"] == CLEAR and stop["end"] == SAME


def ending(place: Path, whole: Path, status: int | None) -> str:
    """Returns how a command that was run again has ended: SAME, or what is not as it should be.

    Args:
      place: the folder that it ran in.
      whole: that of the undisturbed command.
      status: its exit status.
    """
    wanted, found = outputs(whole), outputs(place)
    names = sorted(wanted.keys() | found.keys())
    problems = {
        "exit status": status,
        "differ": [name for name in names if wanted.get(name) != found.get(name)],
        "left": [str(path.relative_to(place)) for path in place.rglob("*.unfinished")],
    }
    return "; ".join(f"{name}: {value}" for name, value in problems.items() if value) or SAME


def main() -> int:
    """Makes the stops that are missing and prints the table; returns 1 if one of them ended badly."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--stops", type=int, default=200)
    parser.add_argument("--folder", type=Path, default=Path("stress"))
    parser.add_argument("--stops_seed", type=int, default=0)
    options = parser.parse_args()
    folder = options.folder.absolute()
    with warm.servers():
        return make_stops(folder, options.stops, options.stops_seed)


def make_stops(folder: Path, num_stops: int, stops_seed: int) -> int:
    """See `main`."""
    given = commands(folder)
    facts = undisturbed(folder, given)
    notes = folder / "stops.jsonl"
    tried = [json.loads(line) for line in notes.read_text().splitlines()] if notes.is_file() else []
    while len(met := [stop for stop in tried if stop["verdict"] != MISSED]) < num_stops:
        number = len(tried)
        command, draw = ORDER[number % len(ORDER)], random.Random(f"{stops_seed} {number}")
        place = folder / "stopped"
        free(place)
        place.mkdir()
        stop = {"stop": number, "command": command.partition("_")[0]}
        stop |= meet(command, given[command], place, draw, facts[command])
        if stop["verdict"] != MISSED:
            bindings = given[command]
            if stop["fault"] == DELETION:
                bindings = in_bucket(bindings, place)
            status, _ = run_to_end(command, bindings, place)
            stop["end"] = ending(place, folder / "whole" / command, status)
            if not is_good(stop):
                (folder / f"log_{number}").write_bytes((place / "log").read_bytes())
        free(place)
        tried.append(stop)
        with open(notes, "a") as stream:
            stream.write(json.dumps(stop) + "\n")
        console.report(json.dumps(stop))
    console.report(table(met))
    return int(not all(map(is_good, met)))


if __name__ == "__main__":
    sys.exit(main())
