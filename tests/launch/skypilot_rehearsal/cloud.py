"""A cloud of two nodes on this machine for SkyPilot: Debian's Slurm, an SSH server, and SkyPilot's own server.

All run as this user, on free ports, with their files in one folder. What is SkyPilot's way with Slurm: it logs
in by SSH, asks for an allocation as another asks for a machine, and installs itself there with uv.
"""

from __future__ import annotations

import contextlib
import ctypes
import getpass
import os
import shutil
import signal
import socket
import subprocess
import uuid
from pathlib import Path
from types import FrameType

import psutil

from multiberts.runs.errors import UserError
from multiberts.tests.launch.slurm_cluster import PROGRAMS, SlurmCluster, free_port
from multiberts.tests.patience import PATIENCE

# Names that resolve everywhere, to addresses that every Linux answers at.
NODES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
_ROOT_ONLY = Path("/run/sshd")  # root's sshd refuses to start without this empty folder
# A node that answers no more is down after `SlurmdTimeout`; SkyPilot looks for ended jobs for a minute.
_SLURM_SETTINGS = "SlurmdTimeout=15\nMinJobAge=60\nKillWait=5"
_SSHD = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/key.pub
UsePAM no
StrictModes no
PasswordAuthentication no
PermitRootLogin yes
MaxStartups 100
MaxSessions 100
SetEnv HOME={folder}/nodes SLURM_CONF={slurm_conf}
"""
_SSH = """
Host rehearsal
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {folder}/key
"""
_CONFIGURATION = """
jobs: {{controller: {{consolidation_mode: true}}}}
slurm: {{cluster_configs: {{rehearsal: {{tmpdir: {folder}/nodes}}}}}}
"""
# SkyPilot installs uv by the script that it gets from its web site, and by uv a Python 3.10 for itself. A script
# that writes this stand-in comes in its place: it keeps one cache, and takes the Python of SkyPilot's environment.
_CURL = """#!/bin/sh
case "$*" in
*/uv/install.sh*) echo 'mkdir -p "$UV_INSTALL_DIR"; cp {folder}/uv "$UV_INSTALL_DIR/uv"' ;;
*) exec {curl} "$@" ;;
esac
"""
_UV = """#!/bin/sh
for argument; do
  shift
  [ "$argument" != 3.10 ] || argument={python}
  set -- "$@" "$argument"
done
export UV_CACHE_DIR={cache} UV_PYTHON_DOWNLOADS=never UV_SYSTEM_CERTS=true
exec {uv} "$@"
"""
# Its jobs' controller watches nothing while neither 8.8.8.8 nor 1.1.1.1 answers, and waits for ever where there is no
# internet. Here the server itself answers.
_ANSWERED = """
import importlib.machinery
import sys


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "sky.backends.backend_utils":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            assert all(url.startswith("https://") for url in module._TEST_IP_LIST)
            module._TEST_IP_LIST = ["http://127.0.0.1:{port}/api/health"]

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder)
"""


def missing_programs() -> list[str]:
    """Returns the programs of Debian's packages that this machine lacks."""
    programs = (*PROGRAMS, "sshd", "ssh", "ssh-keygen", "rsync", "curl")
    return [name for name in programs if shutil.which(name, path=_path()) is None]


def check(sky: Path) -> None:
    """Checks that the cloud can start here.

    Args:
      sky: the folder of programs of SkyPilot's environment.

    Raises:
      UserError: something is missing.
    """
    missing = missing_programs()
    if missing:
        raise UserError(
            f"the rehearsal needs {', '.join(missing)}, not found on this machine; install Debian's packages "
            "munge, slurmctld, slurmd, slurm-client, openssh-server, rsync, curl"
        )
    for program in ("sky", "uv", "python"):
        if not (sky / program).exists():
            raise UserError(
                f"SKYPILOT_PYTHON: {sky} has no program {program}; name the Python of an environment with "
                "skypilot[slurm] and uv, or leave it out: `make rehearse` makes one"
            )
    try:
        socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise UserError(
            f"this machine's name, {socket.gethostname()}, has no address ({error}); Slurm and SkyPilot need "
            "one: add it to /etc/hosts"
        ) from error


def _path() -> str:
    return os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])


class Cloud:
    """Slurm, SSH and SkyPilot while the block runs; then nothing of them is left but files in the folder.

    Attributes:
      slurm: the nodes.
      environment: what `sky` needs to speak to the server.
    """

    def __init__(self, folder: Path, sky: Path, cache: Path):
        self._folder = folder
        self._sky = sky
        self._cache = cache
        self._stack = contextlib.ExitStack()
        self._server_port = free_port()
        self._user_id = uuid.uuid4().hex[:8]
        address = socket.gethostbyname(socket.gethostname())
        self.slurm = SlurmCluster(
            folder / "slurm", NODES, address=address, cpus=1, settings=_SLURM_SETTINGS
        )
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SKY")},
            **self.slurm.environment,
            "HOME": str(folder / "home"),
            "PATH": f"{sky}{os.pathsep}{_path()}",
            "PYTHONPATH": str(folder / "site"),
            "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
            "SKYPILOT_API_SERVER_LOCAL_PORT": str(self._server_port),
            # Names the folder of its sockets below /tmp.
            "SKYPILOT_USER_ID": self._user_id,
            # It starts as many processes as the memory holds.
            "SKYPILOT_POD_MEMORY_GB_LIMIT": "6",
            "SKYPILOT_POD_CPU_CORE_LIMIT": "2",
        }

    def __enter__(self) -> Cloud:
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, f"/tmp/sky_ssh_{self._user_id}", ignore_errors=True)
            self._write_files()
            os.environ["PATH"] = _path()
            stack.enter_context(self.slurm)
            # Before Slurm ends: SkyPilot would look for another node.
            stack.callback(end_descendants)
            if os.getuid() == 0 and not _ROOT_ONLY.exists():
                _ROOT_ONLY.mkdir()
                stack.callback(_ROOT_ONLY.rmdir)
            sshd = [str(shutil.which("sshd")), "-D", "-f", str(self._folder / "sshd_config")]
            subprocess.Popen([*sshd, "-E", str(self._folder / "sshd.log")])
            self.sky("api", "start")
            self.sky("check", "slurm")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def sky(self, *arguments: str) -> str:
        """Returns what a command of SkyPilot prints."""
        done = subprocess.run(
            ["sky", *arguments],
            env=self.environment,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
        )
        with (self._folder / "sky.log").open("a") as log:
            print("$ sky", *arguments, done.stdout, sep="\n", file=log)
        if done.returncode:
            raise RuntimeError(f"sky {' '.join(arguments)}: {done.stdout[-2000:]}")
        return done.stdout

    def _write_files(self) -> None:
        values = {
            "folder": self._folder,
            "port": free_port(),
            "user": getpass.getuser(),
            "slurm_conf": self.slurm.environment["SLURM_CONF"],
            "python": Path(self._sky / "python").resolve(),
            "uv": self._sky / "uv",
            "curl": shutil.which("curl"),
            "cache": self._cache,
        }
        bins = self._folder / "bin"
        for name, template in {
            "sshd_config": _SSHD,
            "home/.slurm/config": _SSH,
            "home/.sky/config.yaml": _CONFIGURATION,
            "bin/curl": _CURL,
            "uv": _UV,
            # A login shell's PATH is set anew by /etc/profile.
            "nodes/.bash_profile": f'export PATH="{bins}:{_path()}"\n',
        }.items():
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(template.format(**values).lstrip())
        for program in (bins / "curl", self._folder / "uv"):
            program.chmod(0o755)
        (self._folder / "site").mkdir()
        answered = _ANSWERED.replace("{port}", str(self._server_port))
        (self._folder / "site" / "sitecustomize.py").write_text(answered)
        for name in ("key", "host_key"):
            command = [
                "ssh-keygen",
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-f",
                str(self._folder / name),
            ]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def adopt_descendants() -> None:
    """Makes this process the parent of descendants whose parents end, so that it can end them all."""
    PR_SET_CHILD_SUBREAPER = 36
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def end_descendants() -> None:
    """Kills every descendant of this process, daemons as well."""
    this = psutil.Process()
    while descendants := this.children(recursive=True):
        for process in descendants:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(descendants, timeout=1)


def exit_on_signals() -> None:
    """Lets SIGTERM and SIGHUP end this process as Ctrl-C does: by an exception, so that all is undone."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)
