"""The table of commands, which can be read without loading Gin, absl or the commands themselves."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Command:
    """A plain function that `multiberts <name>` calls; its module is imported when the command is given.

    Attributes:
      target: `module:function` below `multiberts`, with keyword-only parameters.
      summary: one line for `multiberts --help`.
      example: arguments of a call, shown at the end of `--help`. The examples use each other's outputs,
        starting with those of `multiberts world --run_dir=world`.
      common: optional parameters that `--help` describes, separated by spaces. It only names the others;
        `--helpfull` describes all. Empty: all.
      positional: parameters that may be given without their names; one that ends in `...` takes all values
        that others leave.
      report: `module:function` below `multiberts`, called with `run_dir` after the command; its text is
        printed.
      gin_name: name in Gin besides the function's; by default the command's name with `_` for spaces.
      arguments: `module:class` below `multiberts`, a subclass of `Arguments`.
      notes: `module:function` below `multiberts`, whose text ends `--helpfull`.
      computes: whether it takes `--engine`; see `runs.environment`.
    """

    target: str
    summary: str
    example: str
    positional: tuple[str, ...] = ()
    common: str = ""
    report: str | None = None
    gin_name: str | None = None
    arguments: str = "runs.command_line.command:Arguments"
    notes: str | None = None
    computes: bool = False


_LAUNCH = "launch.command:LaunchArguments"
_EXPERIMENT = (
    "corpora procedures pretrain_seeds checkpoints tasks learning_rates finetune_seeds "
    "finetune_steps"
)

# Commands by purpose, as `multiberts --help` lists them.
PURPOSES = {
    "Compare models": {
        "compare": Command(
            "report.compare_command:compare_files",
            "compare models by their predictions: files in, an answer out",
            "world/predictions/base.csv world/predictions/new.csv --html=comparison.html",
            ("results", "experiment..."),
            common=(
                "experiment base metric html latex csv json design names task margin by "
                "seed_sd arm seed example prediction score label"
            ),
        ),
        "reproduce": Command(
            "report.reproduce_command:reproduce_files",
            "say how probable a published number is, given runs of your own",
            "world/predictions/new.csv --published=0.8 --of=best:5",
            ("results",),
        ),
        "stats": Command(
            "report.reporting:report",
            "compare fine-tuned runs: a page, tables and figures",
            "--run_dir=comparison --predictions=demo",
            report="report.reporting:describe_report",
        ),
        "stats rates": Command(
            "report.selection:learning_rates",
            "print the best learning rate of each task",
            "--predictions=sweep",
            gin_name="learning_rates",
        ),
        "stats instances": Command(
            "papers.zhong.size_comparison:instances",
            "compare model sizes example by example, as Zhong et al. (2021)",
            "--run_dir=sizes --predictions=sweep --sizes=mini,base",
            report="papers.page_run:describe",
            gin_name="instances",
        ),
        "paper": Command(
            "papers.multiberts.reproduction:paper",
            "make the tables and figures of the MultiBERTs paper from runs",
            "--run_dir=paper --predictions=demo",
            report="papers.page_run:describe",
        ),
    },
    "Predictions of others": {
        "import": Command(
            "evaluate.imports.importing:import_predictions",
            "turn predictions of other programs into runs",
            "--run_dir=imported --layout=files --source=world/predictions/base.csv",
            report="evaluate.imports.importing:describe_imports",
            gin_name="import_predictions",  # `import` begins another kind of line in Gin
        ),
        "export": Command(
            "evaluate.exporting:export",
            "write predictions as Parquet, CSV, or files of SQuAD's scorer",
            "--path=predictions.csv --predictions=sweep",
        ),
        "evaluate": Command(
            "evaluate.scoring:score",
            "score fine-tuned runs",
            "--run_dir=scores --predictions=sweep",
            report="evaluate.scoring:describe_scores",
        ),
    },
    "Fine-tune and predict": {
        "finetune": Command(
            "finetune.finetuning:finetune",
            "fine-tune one checkpoint on one task",
            "--run_dir=finetuned --checkpoint=pretrained/checkpoints/step_40 "
            "--task=facts --data_dir=world/facts --sequence_length=64 --keep=last",
            common=(
                "data_dir dataset train_files dev_files evaluation_files labels options "
                "learning_rate finetune_seed batch_size num_epochs sequence_length "
                "max_train_examples prediction_epochs keep max_steps compute_dtype devices"
            ),
            report="evaluate.scoring:describe_run",
            notes="finetune.task:described_options",
            computes=True,
        ),
        "sweep": Command(
            "launch.running:run_plan",
            "fine-tune many checkpoints on many tasks, rates and seeds",
            "--root=sweep --checkpoints=pretrained --tasks=facts --data_dir=world/facts "
            "--sequence_length=64 --learning_rates=1e-4,3e-4 --finetune_seeds=0,1 "
            "--finetune_steps=0,40",
            common=(
                "engine workers checkpoints tasks learning_rates finetune_seeds "
                "finetune_steps data_dir options batch_size num_epochs "
                "sequence_length keep"
            ),
            gin_name="run",
            arguments="launch.command:SweepArguments",
            computes=True,
        ),
        "predict": Command(
            "finetune.prediction:predict",
            "predict with a fine-tuned model on new data",
            "finetuned/model world/facts/dev.tsv --run_dir=predicted",
            ("model", "files..."),
            computes=True,
        ),
    },
    "Pre-train": {
        "prepare": Command(
            "pretrain.corpus.preparation:prepare",
            "turn text into a vocabulary, a token store and instances",
            "--run_dir=corpus --sources=split/trained.txt --source_format=sentences "
            "--vocabulary_size=500 --sequence_length=64",
            report="pretrain.inspection.corpus_summary:describe",
        ),
        "pretrain": Command(
            "pretrain.training.pretraining:pretrain",
            "pre-train one seed",
            "--gin_file=configs/pretrain/smoke.gin --run_dir=pretrained --corpus=corpus "
            "--pretrain_seed=0",
            common=(
                "checkpoint_steps procedure initial_checkpoint batch_size sequence_length "
                "learning_rate warmup_steps gradient_shards save_state_every_steps "
                "log_every_steps evaluation_corpus evaluate_every_steps compute_dtype "
                "devices"
            ),
            report="pretrain.inspection.loss_curves:describe_training",
            computes=True,
        ),
        "show": Command(
            "pretrain.inspection.showing:show",
            "show what a corpus holds, what a training step saw, or how losses fell",
            "pretrained",
            ("paths...",),
        ),
        "holdout": Command(
            "pretrain.corpus.held_out_documents:hold_out",
            "set aside whole documents of a text",
            "--run_dir=split --sources=world/corpus.txt --source_format=sentences",
            gin_name="hold_out",
            report="runs.directory:describe_outputs",
        ),
    },
    "Checkpoints": {
        "checkpoint inspect": Command(
            "bert.checkpoint.commands:inspect_checkpoint",
            "print a checkpoint's sizes, origin, checksums and variables",
            "pretrained/checkpoints/step_40",
            ("checkpoint",),
        ),
        "checkpoint convert": Command(
            "bert.checkpoint.commands:convert_checkpoints",
            "write checkpoints in another layout, bit for bit",
            "pretrained/checkpoints/step_40 converted --to=hugging_face",
            ("sources...", "target"),
        ),
        "checkpoint compare": Command(
            "bert.checkpoint.commands:compare_checkpoints",
            "print how two checkpoints differ",
            "pretrained/checkpoints/step_0 pretrained/checkpoints/step_40",
            ("first", "second"),
        ),
        "push": Command(
            "finetune.pushing:push",
            "upload checkpoints, predictions and a report to the Hugging Face Hub",
            "--run_dir=published "
            '--checkpoints=\'{"seed_0":"pretrained/checkpoints/step_40"}\' '
            "--predictions=sweep --repository=owner/name",
        ),
    },
    "Whole experiments": {
        "launch plan": Command(
            "launch.status.plan_report:show_plan",
            "print what is left to do, and its hours, dollars and disk",
            "--gin_file=configs/demo.gin",
            common=f"budget device workers spot {_EXPERIMENT}",
            gin_name="plan",
            arguments=_LAUNCH,
        ),
        "launch run": Command(
            "launch.running:run_plan",
            "do what is left (also `multiberts launch` alone)",
            "--gin_file=configs/demo.gin --pretrain_seeds=0,1 --tasks=pronoun_probe",
            common=f"engine engine_options workers budget reap {_EXPERIMENT}",
            gin_name="run",
            arguments=_LAUNCH,
        ),
        "launch status": Command(
            "launch.status.command:show_status",
            "show what is running, done and failed",
            "--root=demo --html=status.html",
            gin_name="status",
            arguments=_LAUNCH,
        ),
        "launch doctor": Command(
            "launch.checkup:doctor",
            "check what works on this machine",
            "--root=demo",
            gin_name="doctor",
            arguments=_LAUNCH,
        ),
    },
    "Else": {
        "world": Command(
            "pretrain.world.synthetic_world:make_world",
            "write synthetic text and tasks whose truth is known",
            "--run_dir=world",
            gin_name="make_world",
            report="runs.directory:describe_outputs",
        ),
        "list": Command(
            "launch.listing:list_names", "list tasks, metrics or Gin files", "tasks", ("kind",)
        ),
    },
}
COMMANDS = {name: command for named in PURPOSES.values() for name, command in named.items()}

# Groups of commands, each with the command that its name alone runs, if any.
GROUPS = {"checkpoint": "", "launch": "launch run", "stats": "stats"}

# The Gin name of a command by the name of its function.
_GIN_NAMES = {
    command.target.partition(":")[2]: command.gin_name or name.replace(" ", "_")
    for name, command in COMMANDS.items()
}


def command_of(function: str) -> str:
    """Returns the name of a function's command, or the function's own where it has none."""
    return next((n for n, it in COMMANDS.items() if it.target.endswith(f":{function}")), function)


def gin_name_of(function: str) -> str:
    """Returns the name of a command's function in Gin, help and messages; Gin takes its own name, too."""
    return _GIN_NAMES.get(function, function)


def load(target: str) -> Callable[..., Any]:
    loaded: Callable[..., Any] = pkgutil.resolve_name(f"multiberts.{target}")
    return loaded
