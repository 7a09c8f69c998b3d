"""Debian's Slurm on this machine: one node, two pretended GPUs, all in a folder and on ports of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from multiberts.tests.patience import PATIENCE

PROGRAMS = (
    *("slurmctld", "slurmd", "munged"),
    *("sbatch", "squeue", "scancel", "sinfo", "scontrol"),
)

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={controller_port}
SlurmdPort={node_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
MpiDefault=none
ReturnToService=2
KillWait=10
MinJobAge=2
MessageTimeout=3
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=1000 Gres=gpu:2 State=UNKNOWN
PartitionName=test Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
# Files that exist everywhere stand for the devices.
GPUS = """
Name=gpu File=/dev/zero
Name=gpu File=/dev/full
"""


class SlurmCluster:
    """A controller, a node and what authenticates them, while the block runs.

    Attributes:
      environment: what Slurm's commands need to speak to it.
      controller: the process of slurmctld.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}

    def __enter__(self) -> SlurmCluster:
        for name in ("state", "spool"):
            (self._folder / name).mkdir(parents=True)
        host = socket.gethostname().split(".")[0]
        controller_port, node_port = _free_port(), _free_port()
        (self._folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                folder=self._folder,
                host=host,
                controller_port=controller_port,
                node_port=node_port,
            )
        )
        (self._folder / "gres.conf").write_text(GPUS)
        key = self._folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        munge = [
            *("munged", "--foreground", "--force", f"--key-file={key}"),
            f"--socket={self._folder / 'munge.socket'}",
            *(f"--{name}-file={self._folder / f'munge.{name}'}" for name in ("pid", "log", "seed")),
        ]
        try:
            self._start(munge)
            self._wait((self._folder / "munge.socket").exists)
            self.controller = self._start(["slurmctld", "-D"])
            self._start(["slurmd", "-D", "-N", host])
            self._wait(lambda: "idle" in self.command("sinfo", "--noheader", "--format=%T"))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(subprocess.SubprocessError, OSError):
            self.command("scancel", "--user=root")
            self._wait(lambda: not self.command("squeue", "--noheader"))
        for process in reversed(self._processes):
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def command(self, *arguments: str) -> str:
        """What one of Slurm's commands prints."""
        done = subprocess.run(
            arguments,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        return done.stdout.strip()

    def kill_controller(self) -> None:
        """Kills the controller once the state of its jobs is on the disk, which takes it seconds.

        From an older state it would start a job that runs once more, and drain the node for that.
        """
        jobs, now = self.command("squeue", "--noheader", "--format=%i").split(), time.time()
        for job in jobs:
            self.command("scontrol", "update", f"jobid={job}", "comment=changed")
        saved = self._folder / "state" / "job_state"
        self._wait(lambda: not jobs or (saved.exists() and saved.stat().st_mtime > now))
        self.controller.kill()
        self.controller.wait()
        self._processes.remove(self.controller)

    def start_controller(self) -> None:
        self.controller = self._start(["slurmctld", "-D"])
        self._wait(lambda: "UP" in self.command("scontrol", "ping"))

    def set_node(self, *settings: str) -> None:
        node = self.command("sinfo", "--noheader", "--format=%n")
        self.command("scontrol", "update", f"nodename={node}", *settings)

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        program = shutil.which(command[0])
        assert program is not None
        output = self._folder / f"{command[0]}.output"
        with output.open("wb") as stream:
            process = subprocess.Popen(
                [program, *command[1:]],
                env={**os.environ, **self.environment},
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        return process

    def _wait(self, condition: object, seconds: float = PATIENCE) -> None:
        end = time.monotonic() + seconds
        while not condition():
            ended = any(process.poll() is not None for process in self._processes)
            if ended or time.monotonic() > end:
                said = [path.read_text()[-500:] for path in sorted(self._folder.glob("*.output"))]
                raise TimeoutError("Slurm does not come up: " + "\n".join(said))
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
