"""The distribution: what a wheel installs, and what every way into the package sets beforehand."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import multiberts
from multiberts.runs.environment import DEFAULTS
from multiberts.tests.lint.pins import pinned

ROOT = Path(__file__).resolve().parents[1]

# Stands for Keras and TensorFlow: prints what is set at the moment of the import, and ends.
LIBRARY = """
import os, entry_report
entry_report.report()
os._exit(0)
"""
# Where nothing imports them, prints it at the end of the process.
REPORT = """
import atexit, json, os
def report():
    print(json.dumps({name: os.environ.get(name) for name in %r}), flush=True)
atexit.register(report)
"""
CONSOLE = "import sys; from multiberts.runs.command_line.command import main; main(sys.argv[1:])"
WORKER = (
    "import multiberts.launch.workers.worker\n"
    "from multiberts.launch.plan.planned_run import stage_function; stage_function('finetune')"
)
ENTRIES = {
    "console command": ["-c", CONSOLE, "finetune"],
    "python -m": ["-m", "multiberts.pretrain"],
    "library import": ["-c", "import multiberts.bert.training.engine"],
    "worker": ["-c", WORKER],
    "pytest": ["-m", "pytest", "-s", "-p", "no:cacheprovider", "tests/test_quick.py"],
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_environment_is_set_before_keras_is_imported(entry: str, tmp_path: Path) -> None:
    for name in ("keras", "tensorflow"):
        (tmp_path / f"{name}.py").write_text(LIBRARY)
    (tmp_path / "entry_report.py").write_text(REPORT % list(DEFAULTS))
    (tmp_path / "sitecustomize.py").write_text("import entry_report")
    environment = {name: value for name, value in os.environ.items() if name not in DEFAULTS}
    environment["PYTHONPATH"] = str(tmp_path)
    if entry == "pytest":
        # conftest.py comes first, and imports no Keras itself.
        environment["PYTEST_ADDOPTS"] = "-p keras_after_conftest"
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        (tmp_path / "keras_after_conftest.py").write_text(
            "def pytest_collection_modifyitems():\n    import keras\n"
        )
    output = subprocess.run(
        [sys.executable, *ENTRIES[entry]], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    line = next((line for line in output.stdout.splitlines() if line.startswith("{")), "")
    assert line, output.stderr
    assert json.loads(line) == DEFAULTS


def test_what_the_user_has_set_stays() -> None:
    code = "import os, multiberts.runs.environment; print(os.environ['KERAS_BACKEND'])"
    environment = os.environ | {"KERAS_BACKEND": "jax"}
    output = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert output.stdout == "jax\n"


@pytest.mark.slow
def test_packages_of_the_same_name_are_apart(tmp_path: Path) -> None:
    code = (
        "import evaluate, multiberts.evaluate, scipy.stats, multiberts.stats\n"
        "print(hasattr(evaluate, 'EvaluationModule'), evaluate is multiberts.evaluate)\n"
        "print(scipy.stats is multiberts.stats, multiberts.evaluate.__file__)"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    if "No module named 'evaluate'" in output.stderr:
        pytest.skip("needs Hugging Face's evaluate (the extra test)")
    assert output.stdout.split()[:3] == ["True", "False", "False"], output.stderr
    assert output.stdout.split()[3].endswith("evaluate/__init__.py")


def test_requirements_name_what_the_pipeline_is_built_on() -> None:
    pins = pinned((ROOT / "requirements.txt").read_text(), "3.11", "linux")
    core = {
        "tensorflow",
        "tensorflow-text",
        "tensorflow-datasets",
        "numpy",
        "scipy",
        "absl-py",
        "gin-config",
    }
    assert core <= set(pins)
    assert all(re.fullmatch(r"[\d.]+", version) for version in pins.values())


def test_no_extra_brings_a_second_tensorflow() -> None:
    """Both put their files into one folder, and which of them is imported is then chance."""
    pins = (ROOT / "constraints.txt").read_text()
    assert re.findall(r"^tensorflow(?:-cpu)?==", pins, flags=re.MULTILINE) == ["tensorflow=="]


def copy_tracked_files(folder: Path) -> None:
    """What a clone would hold."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs git and a checkout: only tracked files are installed")
    listing = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listing.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)


def new_environment(folder: Path, *pip_commands: str) -> Path:
    """An empty environment in folder/venv, and what pip then does in the folder; its folder of programs."""
    base = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([base, "-m", "venv", folder / "venv"], check=True)
    programs = folder / "venv" / "bin"
    for command in pip_commands:
        result = subprocess.run(
            f"{programs}/pip {command}", shell=True, cwd=folder, capture_output=True, text=True
        )
        if "NewConnectionError" in result.stderr or "Temporary failure" in result.stderr:
            pytest.skip("needs a package index: pip reaches none")
        assert result.returncode == 0, result.stderr + result.stdout
    return programs


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment with the wheel and what it requires; its folder of programs."""
    folder = tmp_path_factory.mktemp("wheel")
    copy_tracked_files(folder / "source")
    return new_environment(
        folder,
        "wheel --no-deps --wheel-dir dist ./source",
        f"install --no-compile --constraint {ROOT / 'constraints.txt'} dist/*.whl",
    )


def run_there(installed: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [installed / command[0], *command[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_the_wheel_brings_the_command_without_tensorflow(installed: Path, tmp_path: Path) -> None:
    version = run_there(installed, tmp_path, "multiberts", "--version")
    assert version.stdout == f"multiberts {multiberts.__version__}\n", version.stderr
    overview = run_there(installed, tmp_path, "multiberts", "--help")
    assert overview.returncode == 0 and "  stats rates " in overview.stdout
    code = (
        "import importlib.util as u, pathlib, multiberts as m\n"
        "folder = pathlib.Path(m.__file__).parent\n"
        "print([u.find_spec(name) for name in ('tensorflow', 'keras', 'distributed')])\n"
        "print(*sorted(str(p.relative_to(folder)) for p in folder.rglob('*') if p.is_file()))"
    )
    seen = run_there(installed, tmp_path, "python", "-c", code)
    missing, files = seen.stdout.splitlines()
    assert missing == "[None, None, None]"
    data = "py.typed __init__.pyi stats/__init__.pyi configs/demo.gin launch/estimate/prices.toml"
    assert {*data.split()} <= {*files.split()}
    assert not re.search(r"(^| )(tests|docs|benchmarks)/", files)
    checked = run_there(installed, tmp_path, "multiberts", "launch", "doctor", "--training=false")
    assert checked.returncode == 1 and "neither TensorFlow nor JAX is installed" in checked.stdout


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/statistics.md"])
def test_the_statistics_run_from_the_wheel(installed: Path, tmp_path: Path, page: str) -> None:
    text = (ROOT / page).read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert blocks
    (tmp_path / "blocks.py").write_text("\n".join(blocks))
    result = run_there(installed, tmp_path, "python", "blocks.py")
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_requirements_install_every_stage(tmp_path: Path) -> None:
    copy_tracked_files(tmp_path)
    programs = new_environment(tmp_path, "install --no-compile -r requirements.txt", "check")
    (tmp_path / "elsewhere").mkdir()
    doctor = run_there(
        programs, tmp_path / "elsewhere", "python", "-m", "multiberts", "launch", "doctor"
    )
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    imports = "import tensorflow_datasets, tensorflow_text, multiberts; print(multiberts.__file__)"
    seen = run_there(programs, tmp_path / "elsewhere", "python", "-c", imports)
    assert seen.stdout == f"{tmp_path / '__init__.py'}\n", seen.stderr
