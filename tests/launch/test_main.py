"""The command line: which command gets which arguments, and one line for what is wrong."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from multiberts.tests.tools import warm

RunPython = Callable[..., subprocess.CompletedProcess[str]]

EXPERIMENT = """
launch.root = {root!r}
launch.corpora = ['base', 'other']
launch.procedures = ['base']
launch.pretrain_seeds = [0, 1]
launch.tasks = ['facts']
launch.learning_rates = [1e-3]
prepare.sources = ['world:corpus.txt']
prepare.source_format = 'sentences'
other/prepare.vocabulary = 'base:vocab.txt'
make_world.num_documents = 30
pretrain.model = {{}}
pretrain.num_steps = 1000
base/pretrain.corpus = 'other'
finetune.data_dir = 'world:facts'
# Options of commands that are not called are not looked at.
doctor.data = 'somewhere'
"""


def launch(*arguments: str) -> subprocess.CompletedProcess[str]:
    return warm.run(["launch", *arguments])


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "experiment.gin"
    path.write_text(EXPERIMENT.format(root=str(tmp_path / "root")))
    return f"--gin_file={path}"


def test_the_plan_is_shown_of_the_root_on_the_command_line(tmp_path: Path, config: str) -> None:
    for root, *flag in ((tmp_path / "root",), (tmp_path / "other", f"--root={tmp_path / 'other'}")):
        plan = launch("plan", config, "--device=v4-8", *flag)
        assert plan.returncode == 0, plan.stderr
        # A world, two corpora, two seeds, each fine-tuned once at its last step, scores.
        assert plan.stdout.startswith("estimate of what is left, on 1 x v4-8")
        assert f"\n{root}: 8 runs, 0 done\n" in plan.stdout
        assert not root.exists()


def test_options_come_from_gin_flags_and_those_of_run(config: str) -> None:
    def shown(*more: str) -> str:
        result = launch("plan", config, *more)
        assert result.returncode == 0, result.stderr
        return result.stdout

    workers = "--gin_param=launch.workers = 3"
    assert "on 3 x H100" in shown(workers, "--gin_param=plan.device = 'H100'")
    assert "on 5 x v4-8" in shown(
        workers, "--gin_param=run.workers = 5", "--gin_param=plan.device = 'H100'", "--device=v4-8"
    )
    jobs = ("--gin_file=configs/launch/slurm.gin", "--gin_param=PARTITION = 'gpu'", "--device=H100")
    assert "on 8 x H100" in shown(*jobs, "--gin_param=GPUS_PER_NODE = 2")
    assert "on 3 x H100" in shown(*jobs, "--workers=3")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pln"], "'launch pln'"),
        (["plan", "now"], "argument 'now'"),
        (["plan", "--once"], "--once"),
        (["--root", "plan", "status"], "argument 'status'"),
        (["plan", "--budget=much"], "plan.budget is 'much'"),
        (["status", "--gin_param=status.watch = 'no'"], "status.watch is 'no'"),
        (["plan", "--gin_param=plan.devise = 'cpu'"], "no parameter 'devise'"),
        (["plan", "--gin_file=absent.gin"], "--gin_file absent.gin does not exist"),
        (["--gin_param=base/prepare.vocabulary = 'nowhere.txt'"], "nowhere.txt does not exist"),
        (["run", "--device=v4-8", "--gin_param=run.engine = 'slum'"], "--device"),
        (["run", "--gin_param=run.engine = 'slum'"], "run.engine is 'slum'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_one_line(
    tmp_path: Path, config: str, arguments: list[str], message: str
) -> None:
    words = [argument for argument in arguments[:1] if not argument.startswith("-")]
    result = launch(*words, config, *arguments[len(words) :])
    assert result.returncode == 2
    assert message in result.stderr and len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "root").exists()


def test_reaping_needs_the_root_alone_and_starts_nothing(tmp_path: Path, config: str) -> None:
    root = tmp_path / "root"
    refused = launch("run", "--reap", config)
    assert refused.returncode == 2 and "root is not a directory" in refused.stderr
    root.mkdir()
    for arguments in (["--reap", f"--root={root}"], ["--reap", config]):
        result = launch("run", *arguments)
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith("nothing to end: ")
    # The lease is taken and given back.
    assert [path.name for path in root.iterdir()] == ["launch"]
    assert not (root / "launch" / "lease.json").exists()
    unclear = launch("run", "--reap=all", config)
    assert unclear.returncode == 2
    assert unclear.stderr == "error: run.reap is 'all', expected bool; correct it\n"


def test_what_is_missing_is_named(run_python: RunPython) -> None:
    # A process that only Python starts: `python -m launch` is a command of its own.
    result = run_python("-m", "launch", "status")
    assert result.returncode == 2 and "status lacks launch.root" in result.stderr
    result = launch("plan")
    assert result.returncode == 2 and "plan lacks launch.root" in result.stderr
    result = launch("plan", "--root=root")
    assert "launch lists nothing to do; set launch.procedures" in result.stderr


def test_help_shows_options_and_the_experiment() -> None:
    options = launch("plan", "--helpfull").stdout
    assert "--budget (float at least 0; optional)\n      refuse a plan" in options
    assert "--data (str; optional)\n      folder of" in options
    assert "--pretrain_seeds" not in launch("doctor", "--help").stdout


def test_tasks_are_those_of_the_register_and_of_the_users_modules(
    tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Gin a hyphen is an underscore; a module of your own says that its task trains nothing."""
    (tmp_path / "my_tasks.py").write_text(
        "from multiberts.finetune.coreference.pronoun_probe import TASKS as PROBES\n"
        "import dataclasses\n"
        "TASKS = (dataclasses.replace(PROBES[0], name='mine'),)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    bindings = (
        "launch.tasks = ['SST-2', 'mine']",
        "launch.learning_rates = [1e-3, 1e-4]",
        "launch.held_out_folds = {'SST-2': [None, 0]}",
        "SST_2/finetune.num_epochs = 1",
        "mine/finetune.data_dir = None",
        "mine/finetune.winogender_dir = 'world:winogender'",
        "finetune.task_modules = ['my_tasks']",
    )
    flags = [f"--gin_param={binding}" for binding in bindings]
    result = launch("plan", config, *flags)
    assert result.returncode == 0, result.stderr
    # Of each of two checkpoints one run of the probe; of SST-2 two rates, with and without a fold.
    assert re.search(r"finetune +10 +0 ", result.stdout)
    assert "  finetune/SST-2/: 8 runs, 0 done\n" in result.stdout


def test_the_release_on_cloud_tpu_needs_its_vocabulary(tmp_path: Path) -> None:
    """The release used BERT's published word pieces: learning others would be another experiment."""
    given = {"BUCKET": "'gs://b/e'", "TEXT": "['a.txt']", "ROOT": f"'{tmp_path}'"}
    params = [f"--gin_param={name} = {value}" for name, value in given.items()]
    said = launch("plan", "--gin_file=configs/launch/tpu.gin", *params)
    assert said.returncode == 2
    assert said.stderr.startswith("error: ") and said.stderr.count("\n") == 1
    assert "--gin_param='VOCABULARY = ...'" in said.stderr
