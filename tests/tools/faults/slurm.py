"""Faults of launches on Slurm, and of clocks."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from multiberts.tests.tools.slurm_cluster import PROGRAMS, SlurmCluster

_HERE = Path(__file__).resolve().parents[2] / "launch"
_LIMIT = 45.0  # seconds for a launcher, which may wait for ever
_LAUNCH = "import sys; from multiberts.tests.launch.launchers import launch; launch(sys.argv.pop())"
# Adds the seconds that a file holds to the clock of a process. libfaketime changes sleeps, too.
_CLOCK = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long added(void) {
    char text[32];
    int file = open(getenv("CLOCK_FILE"), O_RDONLY | O_CLOEXEC);
    long size = read(file, text, 31);
    close(file);
    text[size > 0 ? size : 0] = 0;
    return atol(text);
}
int clock_gettime(clockid_t clock, struct timespec *at) {
    int status = syscall(SYS_clock_gettime, clock, at);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) at->tv_sec += added();
    return status;
}
int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


def name_of_another_user(scratch: Path) -> str:
    """LOGNAME is another user's, as after su or sudo -E; two runs take 12 s."""
    return _on_slurm(scratch, seconds=12, variables={"LOGNAME": "nobody"})


def filters_of_squeue(scratch: Path) -> str:
    """SQUEUE_PARTITION, a filter of the user, names another partition; two runs take 12 s."""
    return _on_slurm(scratch, seconds=12, variables={"SQUEUE_PARTITION": "cpu"})


def name_of_jobs_in_the_environment(scratch: Path) -> str:
    """SBATCH_JOB_NAME renames every job of the user; two runs take 12 s."""
    return _on_slurm(scratch, seconds=12, variables={"SBATCH_JOB_NAME": "mine"})


def held_jobs(scratch: Path) -> str:
    """Every job of the launch is held."""
    return _on_slurm(scratch, options={"scheduler_options": "--hold"})


def job_that_is_held_once(scratch: Path) -> str:
    """The first job is held while it waits for its node; then the node is free."""

    def hold(slurm: SlurmCluster) -> Callable[[], bool]:
        slurm.set_node("state=drain", "reason=test")

        def look() -> bool:
            jobs = slurm.command("squeue", "--noheader", "--format=%i").split()
            if jobs:
                slurm.command("scontrol", "hold", jobs[0])
                slurm.set_node("state=resume")
            return bool(jobs)

        return look

    return _on_slurm(scratch, prepare=hold)


def more_cores_than_nodes_have(scratch: Path) -> str:
    """A job asks for 100 cores, which Slurm takes and never starts."""
    return _on_slurm(scratch, options={"cores": 100})


def longer_than_the_partition_allows(scratch: Path) -> str:
    """A job asks for ten minutes in a partition of one."""

    def shorten(slurm: SlurmCluster) -> None:
        slurm.command("scontrol", "update", "partitionname=test", "maxtime=1:00")

    return _on_slurm(scratch, prepare=shorten)


def ctrl_c(scratch: Path) -> str:
    """Ctrl-C while two runs go on, after 8 s."""
    return _on_slurm(scratch, limit=8)


def node_two_minutes_behind(scratch: Path) -> str:
    """The clock of the node is two minutes behind the launcher's."""
    clock = _clock(scratch, "-120")
    exports = [f"export {name}={value}" for name, value in clock.items()]
    options = {"worker_init": "\n".join(exports)}
    return _on_slurm(scratch, seconds=1, options=options) if clock else "needs a compiler of C"


def worker_killed_after_the_clock_was_set_back(scratch: Path) -> str:
    """This machine's clock is set back by ten minutes, then one of two workers is killed; two runs."""
    clock, attempts = _clock(scratch, "0"), scratch / "root" / "launch" / "attempts"
    if not clock:
        return "needs a compiler of C"
    killed: list[int] = []

    def step_and_kill() -> bool:
        texts = [line for file in attempts.rglob("*.json*") for line in file.open()]
        workers = {one["path"]: one["pid"] for one in map(json.loads, filter(str.strip, texts))}
        if not killed and len(workers) == 2:
            time.sleep(1)  # the launcher counts its workers twice a second
            Path(clock["CLOCK_FILE"]).write_text("-600")
            killed.append(workers["run0"])
            os.kill(killed[0], signal.SIGKILL)
        log = scratch / "root" / "logs" / "run0.log"
        has_begun_again = log.exists() and log.read_text().count("begun") > 1
        if has_begun_again:
            (scratch / "release").touch()
        return has_begun_again

    return _launch(scratch, {"workers": 2}, clock, meanwhile=step_and_kill)


def _clock(scratch: Path, seconds: str) -> dict[str, str]:
    """Variables that add seconds to the clock of processes; none without a compiler."""
    if shutil.which("cc") is None:
        return {}
    (scratch / "clock.c").write_text(_CLOCK)
    (scratch / "seconds").write_text(seconds)
    library = scratch / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, scratch / "clock.c"], check=True)
    return {"LD_PRELOAD": str(library), "CLOCK_FILE": str(scratch / "seconds")}


def _on_slurm(
    scratch: Path,
    *,
    seconds: float | None = None,
    options: Mapping[str, Any] | None = None,
    variables: Mapping[str, str] | None = None,
    prepare: Callable[[SlurmCluster], Callable[[], bool] | None] | None = None,
    limit: float = _LIMIT,
) -> str:
    """Launches two runs on a Slurm of one node; `seconds` after the first has begun both end."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        return f"needs root and Slurm ({', '.join(missing)} not found)"
    settings = {
        "engine": "slurm",
        "engine_options": {
            "partition": "test",
            "cores": 2,
            "walltime": "00:10:00",
            "poll_seconds": 1,
            **(options or {}),
        },
    }
    began: list[float] = []

    def release() -> bool:
        if (scratch / "root/logs/run0.log").exists():
            began.append(time.monotonic())
        if seconds is None or not began or time.monotonic() - began[0] < seconds:
            return False
        (scratch / "release").touch()
        return True

    with SlurmCluster(scratch / "slurm") as slurm:
        meanwhile = prepare(slurm) if prepare is not None else None
        if meanwhile is not None:
            (scratch / "release").touch()
        environment = {**slurm.environment, **(variables or {})}
        said = _launch(scratch, settings, environment, meanwhile=meanwhile or release, limit=limit)
        jobs = slurm.command("squeue", "--noheader", "--states=PD,R", "--format=%i %T %r")
        return f"{said}\njobs that are left: {jobs.splitlines() or 'none'}"


def _launch(
    scratch: Path,
    settings: Mapping[str, Any],
    variables: Mapping[str, str],
    *,
    meanwhile: Callable[[], bool],
    limit: float = _LIMIT,
) -> str:
    """Launches two runs that wait for a file; says what a user sees, and how many are done."""
    root, release = scratch / "root", scratch / "release"
    runs = [("quick_stages:wait", f"run{n}", {"release": str(release)}, []) for n in range(2)]
    content = json.dumps({"runs": runs, "root": str(root), **settings})
    paths = os.pathsep.join([str(_HERE), os.environ.get("PYTHONPATH", "")])
    output = scratch / "output"
    started = time.monotonic()
    with output.open("w") as stream:
        launcher = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, content],
            env={**os.environ, "PYTHONPATH": paths, **variables},
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # Who starts this may have ignored it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    has_happened, how = False, "ended by itself"
    while launcher.poll() is None and time.monotonic() - started < limit:
        has_happened = has_happened or meanwhile()
        time.sleep(0.1)
    if launcher.poll() is None:
        how = f"had not ended after {limit:.0f} s, then Ctrl-C"
        launcher.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            launcher.wait(20)
    if launcher.poll() is None:
        how += ", which it did not obey: killed"
        os.killpg(launcher.pid, signal.SIGKILL)
    status, took = launcher.wait(), time.monotonic() - started
    done = sum((root / run[1] / "DONE").exists() for run in runs)
    last = "\n".join(output.read_text(errors="replace").strip().splitlines()[-3:])
    return f"{how}; status {status}, {took:.0f} s, {done} of {len(runs)} runs done\n{last}"
