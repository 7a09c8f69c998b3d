"""Debian's Slurm on this machine, run by this user: all in a folder and on ports of its own."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from multiberts.tests.tools.patience import PATIENCE

PROGRAMS = (
    *("slurmctld", "slurmd", "munged"),
    *("sbatch", "squeue", "scancel", "sinfo", "scontrol"),
)

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={controller_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
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
NodeName=DEFAULT CPUs={cpus} RealMemory=4000 Gres=gpu:2 State=UNKNOWN
{nodes}
PartitionName=test Nodes={names} Default=YES MaxTime=INFINITE State=UP
{settings}
"""
# Files that exist everywhere stand for the devices.
GPUS = """
Name=gpu File=/dev/zero
Name=gpu File=/dev/full
"""


class SlurmCluster:
    """A controller, nodes of two pretended GPUs, and what authenticates them, while the block runs.

    Args:
      folder: is made; its path is short, as sockets lie in it.
      nodes: their names; none: one with this machine's name.
      address: of all nodes.
      cpus: of each node.
      settings: more lines of slurm.conf.

    Attributes:
      environment: what Slurm's commands need to speak to it.
      controller: the process of slurmctld.
    """

    def __init__(
        self,
        folder: Path,
        nodes: Sequence[str] = (),
        *,
        address: str = "127.0.0.1",
        cpus: int = 4,
        settings: str = "",
    ):
        self._folder = folder
        self._host = socket.gethostname().split(".")[0]
        self._nodes = nodes or [self._host]
        self._address = address
        self._cpus = cpus
        self._settings = settings
        self._processes: list[subprocess.Popen[bytes]] = []
        self._node_daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}

    def __enter__(self) -> SlurmCluster:
        (self._folder / "state").mkdir(parents=True)
        (self._folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                folder=self._folder,
                host=self._host,
                user=getpass.getuser(),
                controller_port=free_port(),
                cpus=self._cpus,
                nodes="\n".join(
                    f"NodeName={name} NodeHostname={self._host} NodeAddr={self._address} Port={free_port()}"
                    for name in self._nodes
                ),
                names=",".join(self._nodes),
                settings=self._settings,
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
            for name in self._nodes:
                self.start_node(name)
            idle = ["idle"] * len(self._nodes)
            self._wait(lambda: self._states_of_nodes() == idle)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        if all(process.poll() is None for process in self._processes):
            with contextlib.suppress(subprocess.SubprocessError, OSError):
                self.command("scancel", f"--user={getpass.getuser()}")
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

    def set_node(self, *settings: str, name: str | None = None) -> None:
        self.command("scontrol", "update", f"nodename={name or self._nodes[0]}", *settings)

    def start_node(self, name: str) -> None:
        # Everything that runs on the node inherits this variable, Slurm's own daemons of a job as well.
        slurmd = self._start(["slurmd", "-D", "-N", name], SLURMD_NODENAME=name)
        self._node_daemons[name] = slurmd

    def kill_node(self, name: str) -> None:
        """Kills all that runs on a node by SIGKILL, as when it loses its power."""
        daemon = self._node_daemons.pop(name)
        self._processes.remove(daemon)
        mark, killed = {"SLURMD_NODENAME": name, **self.environment}.items(), True
        while killed:
            killed = False
            for process in psutil.process_iter():
                with contextlib.suppress(psutil.Error, OSError):
                    # That of a zombie is empty, or cannot be read.
                    if mark <= process.environ().items():
                        process.kill()
                        killed = True
        daemon.wait()

    def _states_of_nodes(self) -> list[str]:
        return self.command("sinfo", "--noheader", "--Node", "--format=%T").split()

    def _start(self, command: list[str], **variables: str) -> subprocess.Popen[bytes]:
        program = shutil.which(command[0])
        assert program is not None
        output = self._folder / f"{'-'.join([command[0], *variables.values()])}.output"
        with output.open("ab") as stream:
            process = subprocess.Popen(
                [program, *command[1:]],
                env={**os.environ, **self.environment, **variables},
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


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
