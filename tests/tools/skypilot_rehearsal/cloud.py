"""A cloud on this machine for SkyPilot: Debian's Slurm, an SSH server, and SkyPilot's own server.

All run as this user, on free ports, with their files in one folder. SkyPilot logs in by SSH, asks Slurm for
an allocation where it asks others for a machine, and installs itself there by uv.
"""

from __future__ import annotations

import contextlib
import ctypes
import getpass
import json
import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from pathlib import Path

import psutil

from multiberts.runs.errors import UserError
from multiberts.tests.tools.patience import PATIENCE
from multiberts.tests.tools.slurm_cluster import PROGRAMS, SlurmCluster, free_port

VARIABLE = "SKYPILOT_PYTHON"
_PROJECT = Path(__file__).resolve().parents[3]
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
UsePAM yes
StrictModes no
PasswordAuthentication no
PermitRootLogin yes
MaxStartups 100
MaxSessions 100
SetEnv HOME={folder}/nodes SLURM_CONF={slurm_conf} TMPDIR={scratch}
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
# On each machine SkyPilot runs uv's install script from the web, and has uv fetch a Python 3.10. In place of
# that uv comes this one, with this user's cache, which takes the Python of SkyPilot's environment here.
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
# What SkyPilot cannot be told: the controller of its jobs watches nothing while neither 8.8.8.8 nor 1.1.1.1
# answers, so never without internet (here its own server answers), and all users share a log in /tmp.
_CHANGED = """
import importlib.machinery
import sys

CHANGES = {{
    "sky.backends.backend_utils": ("_TEST_IP_LIST", ["http://127.0.0.1:{server_port}/api/health"]),
    "sky.skylet.constants": ("HA_PERSISTENT_RECOVERY_LOG_PATH", "{folder}/{{}}ha_recovery.log"),
}}


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in CHANGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            assert hasattr(module, CHANGES[name][0])
            setattr(module, *CHANGES[name])

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder)
"""


def missing_programs() -> list[str]:
    """Returns the programs that this machine lacks."""
    programs = (*PROGRAMS, "sshd", "ssh", "ssh-keygen", "rsync", "curl")
    return [name for name in programs if shutil.which(name, path=_path()) is None]


def check() -> Path:
    """Returns the folder of programs of SkyPilot's environment.

    Raises:
      UserError: this machine lacks something that the cloud needs.
    """
    missing = missing_programs()
    if missing:
        raise UserError(
            f"found no {', '.join(missing)} on this machine; "
            "apt install munge slurm-wlm openssh-server rsync curl"
        )
    name = socket.gethostname()
    try:
        socket.gethostbyname(name)
    except OSError as error:
        raise UserError(
            f"this machine's name, {name}, has no address; add the line '127.0.1.1 {name}' to /etc/hosts"
        ) from error
    folder = Path(os.environ.get(VARIABLE, "")).absolute().parent
    if not all((folder / program).exists() for program in ("python", "sky", "uv")):
        raise UserError(
            f"{VARIABLE} is {os.environ.get(VARIABLE, '')!r}, expected the Python of an environment that has "
            "skypilot[slurm]==0.14.1 and uv; `make rehearse` without it makes one"
        )
    return folder


def _path() -> str:
    return os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])


class Cloud:
    """Slurm, SSH and SkyPilot while the block runs; then nothing of them is left but files in the folder.

    Attributes:
      slurm: the nodes.
      environment: what `sky` needs to speak to the server.
    """

    def __init__(self, folder: Path, sky: Path):
        self._folder = folder
        self._sky = sky
        self._stack = contextlib.ExitStack()
        self._server_port = free_port()
        self._user_id = uuid.uuid4().hex[:8]
        # Sockets lie in it, whose paths have at most 107 characters.
        self._scratch = Path(tempfile.mkdtemp(prefix="rehearsal-"))
        address = socket.gethostbyname(socket.gethostname())
        self.slurm = SlurmCluster(
            self._scratch / "slurm", NODES, address=address, cpus=1, settings=_SLURM_SETTINGS
        )
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SKY")},
            **self.slurm.environment,
            "HOME": str(folder / "home"),
            "PATH": f"{sky}{os.pathsep}{_path()}",
            "PYTHONPATH": str(folder / "site"),
            "TMPDIR": str(self._scratch),
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
            stack.callback(self._keep_logs)
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
            if "Slurm: enabled" not in self.sky("check", "slurm"):
                logs = "sky.log and sshd.log"
                raise RuntimeError(
                    f"SkyPilot does not reach Slurm by SSH, see {logs} in {self._folder}"
                )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def sky(self, *arguments: str) -> str:
        """Returns what a command of SkyPilot prints."""
        done = subprocess.run(
            ["sky", *arguments],
            env=self.environment,
            cwd=_PROJECT,  # what `workdir: .` of a task means
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

    def status_of(self, name: str) -> str:
        """Returns the status of the managed job of this name."""
        printed = self.sky("jobs", "queue", "--all", "--output=json")
        jobs = json.loads(printed[printed.index("[") :])
        return next(str(job["status"]) for job in jobs if job["job_name"] == name)

    def _keep_logs(self) -> None:
        for log in (self._scratch / "slurm").glob("*.*"):
            if log.suffix in (".log", ".output"):
                shutil.copy(log, self._folder)
        shutil.rmtree(self._scratch)

    def _write_files(self) -> None:
        values = {
            "folder": self._folder,
            "port": free_port(),
            "server_port": self._server_port,
            "user": getpass.getuser(),
            "scratch": self._scratch,
            "slurm_conf": self.slurm.environment["SLURM_CONF"],
            "python": Path(self._sky / "python").resolve(),
            "uv": self._sky / "uv",
            "curl": shutil.which("curl"),
            "cache": os.environ.get("UV_CACHE_DIR", Path.home() / ".cache" / "uv"),
        }
        bins = self._folder / "bin"
        for name, template in {
            "sshd_config": _SSHD,
            "home/.slurm/config": _SSH,
            "home/.sky/config.yaml": _CONFIGURATION,
            "bin/curl": _CURL,
            "uv": _UV,
            "site/sitecustomize.py": _CHANGED,
            # A login shell's PATH is set anew by /etc/profile.
            "nodes/.bash_profile": f'export PATH="{bins}:{_path()}"\n',
        }.items():
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(template.format(**values).lstrip())
        for program in (bins / "curl", self._folder / "uv"):
            program.chmod(0o755)
        for name in ("key", "host_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self._folder / name]
            subprocess.run(command, check=True)


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
