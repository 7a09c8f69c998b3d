"""The command line: every command by name, Gin files and parameters in, one plain function called."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import os
import pkgutil
import re
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gin
from absl import app, flags

import multiberts
from multiberts.runs import console, environment, files, parameters
from multiberts.runs.bucket.localising import local_arguments
from multiberts.runs.command_line.gin_files import bindings_of, in_data_folder, parse_gin
from multiberts.runs.directory import DONE
from multiberts.runs.errors import UserError, disk_full_line, in_flags, memory_error, nearest
from multiberts.runs.parameters import annotations_of, described
from multiberts.runs.preemption import exit_when_preempted

EXIT_USER_ERROR = 2
EXIT_OUTPUT_CLOSED = 141  # as a shell reports a process that SIGPIPE ended

_GIN_FILE = flags.DEFINE_multi_string("gin_file", [], "Gin file; may be given several times.")
_GIN_PARAM = flags.DEFINE_multi_string(
    "gin_param", [], "Gin binding such as 'pretrain.num_steps = 100'."
)
_ALLOW_GIN_IMPORTS = flags.DEFINE_bool("allow_gin_imports", False, "Let Gin files import modules.")
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Overwrite output files of other programs.")
_FULL_HELP = {"-helpfull", "--helpfull"}
_HELP = {"-h", "-help", "--help", "-helpshort", "--helpshort"} | _FULL_HELP
_HELP_WIDTH = 100
_WHOLE_WORDS: Any = {"break_long_words": False, "break_on_hyphens": False}


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
    command.target.partition(":")[2]: command.gin_name or re.sub("[- ]", "_", name)
    for name, command in COMMANDS.items()
}


def command_of(function: str) -> str:
    """Returns the name of a function's command, or the function's own where it has none."""
    return next((n for n, it in COMMANDS.items() if it.target.endswith(f":{function}")), function)


def gin_name_of(function: str) -> str:
    """Returns the name of a command's function in Gin, help and messages.

    Gin files may bind them under the function's own name, too.
    """
    return _GIN_NAMES.get(function, function)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs `multiberts <command> ...`, by default of this process; `python -m multiberts.<package>`, too."""
    given = sys.argv[1:] if arguments is None else arguments
    with _one_line_errors():
        name, *rest = console.take_verbosity(given) or ["--help"]
        if name in _HELP:
            console.report(_overview())
            return
        if name == "--version":
            console.report(f"multiberts {multiberts.__version__}")
            return
        if name in GROUPS:
            default, asks = GROUPS[name], asks_for_help(rest)
            if rest and not rest[0].startswith("-"):
                default = f"{name} {rest.pop(0)}"
            elif asks or not default:
                console.report(_overview(name))
                if default != name:
                    sys.exit(0 if asks else EXIT_USER_ERROR)
            name = default
        if name not in COMMANDS:
            known = COMMANDS if " " in name else {one.partition(" ")[0]: one for one in COMMANDS}
            raise UserError(f"unknown command {name!r}; {nearest(name, known)}")
        command = COMMANDS[name]
        if command.computes:
            # Before anything imports Keras, which keeps its engine for the life of the process.
            parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
            parser.add_argument("--engine", nargs="?", const="")
            chosen, rest = parser.parse_known_args(rest)
            if chosen.engine is not None:
                environment.choose_engine(chosen.engine)
            elif not asks_for_help(rest):
                environment.engine()
        sys.argv = [f"multiberts {name}", *rest]
        run_command(load(command.target), command)


# The extra in `pyproject.toml` of each package that `pip install .` leaves out.
_EXTRAS = {"gcsfs": "cloud", "fsspec": "cloud", "pyarrow": "parquet"}
# Launches need the tokeniser, too, which the extra `launch` alone lacks.
_TRAINING = (
    "cryptography dask distributed google h5py huggingface_hub keras ml_dtypes psutil rich "
    "safetensors tensorflow tensorflow_datasets tokenizers"
)
_EXTRAS |= dict.fromkeys(_TRAINING.split(), "tensorflow")


def load(target: str) -> Callable[..., Any]:
    loaded: Callable[..., Any] = pkgutil.resolve_name(f"multiberts.{target}")
    return loaded


def _overview(group: str = "") -> str:
    listed = {name: one for name, one in COMMANDS.items() if f"{name} ".startswith(group)}
    width = max(map(len, listed))
    lines = []
    for title, commands in PURPOSES.items():
        rows = [f"  {name:<{width}}  {listed[name].summary}" for name in commands if name in listed]
        lines += [*([] if group else [f"{title}:"]), *rows, ""] if rows else []
    usage = f"{group} <command>" if group else "<command>"
    return "\n".join(
        [
            f"usage: multiberts {usage} [--parameter=value ...] [--gin_file=...] [--gin_param=...]",
            "",
            *lines,
            "`multiberts <command> --help` describes the common parameters and ends with an example;",
            "--helpfull describes all. The examples use each other's outputs in one folder: start with",
            "world, then holdout, prepare, pretrain, finetune and sweep. With -q a command prints results,",
            "warnings and errors alone; with -v its parameters and time, too, and where an error came from.",
            "pretrain, finetune, predict and sweep take --engine=tensorflow or --engine=jax.",
            "Output files that multiberts did not write are replaced only with --overwrite.",
        ]
    )


class Arguments:
    """Collects the arguments of a command's function from flags and Gin."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.gin_name = gin_name_of(function.__name__)

    def flags(self) -> Mapping[str, Any]:
        return annotations_of(self.function)

    def groups(self) -> Iterator[tuple[str, Callable[..., Any], Mapping[str, Any]]]:
        """Yields for each group of parameters a heading, their function and their annotations."""
        binding = f"{self.gin_name}.name = value"
        heading = f"Parameters, as --name=value or, in a --gin_file, as {binding}:"
        yield heading, self.function, self.flags()

    def gather(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Parses Gin and returns the function's arguments; `given`, the values of flags, override Gin."""
        # If both names are bound, the command's wins.
        names = {self.function.__name__: self.function, self.gin_name: self.function}
        parse_gin_flags(names, by_gin_name(names, self.flags(), given))
        bindings: dict[str, Any] = {}
        for name in names:
            bindings |= in_data_folder(bindings_of(name))
        bindings |= given
        require_arguments(self.function, set(bindings))
        parameters.check_arguments(self.function, bindings)
        return parameters.typed_arguments(self.function, bindings)

    def local(self, bindings: dict[str, Any]) -> contextlib.AbstractContextManager[dict[str, Any]]:
        """Yields the arguments for the call, with local copies of paths in a bucket."""
        return local_arguments(bindings)

    def functions(self) -> Iterable[Callable[..., Any]]:
        """Returns the functions whose parameters error messages may name."""
        return [self.function]

    def exit_with(self, result: object) -> None:
        """Exits with the function's result as status; returns if that is 0."""
        if isinstance(result, int) and result:
            sys.exit(result)


def run_command(function: Callable[..., object], command: Command = Command("", "", "")) -> None:
    """Binds the command line and Gin to a function's parameters and calls it.

    The process exits with 0, with 2 and one line on standard error for bad input, with 75 where it
    was asked to stop and has saved, or with a traceback for our own mistakes. A text that the
    function returns is printed.

    Args:
      function: a stage's entry, with keyword-only parameters; each is a flag, too, which wins.
    """
    source: Arguments = load(command.arguments)(function)
    if asks_for_help(sys.argv[1:]):
        console.report(help_of(source, command, not _FULL_HELP.isdisjoint(sys.argv)))
        return
    annotations = source.flags()
    for name, annotation in annotations.items():
        flags.DEFINE_multi_string(name, None, "See --help.")
        # A boolean flag needs no value: `--json`, `--nojson`.
        flags.FLAGS[name].boolean = parameters.is_boolean(annotation)

    def main(arguments: Sequence[str]) -> None:
        texts = {name: flags.FLAGS[name].value for name in annotations}
        texts |= positional_texts(arguments[1:], command.positional)
        given = {
            name: parameters.expanded(parameters.value_of_flag(listed, annotations[name]))
            for name, listed in texts.items()
            if listed
        }
        files.overwrites = _OVERWRITE.value
        bindings = source.gather(given)
        for name in filter(annotations.__contains__, bindings):
            console.detail(f"{source.gin_name}.{name} = {bindings[name]!r}")
        started = time.perf_counter()
        # Not through Gin, which would add lines to error messages.
        with source.local(bindings) as arguments_here:
            run_dir = arguments_here.get("run_dir")
            before = _when_done(run_dir)
            result = parameters.bound_call(function, arguments_here)()
            # A function that returns a text makes no run.
            is_run = before is not None and not isinstance(result, str)
            if is_run and _when_done(run_dir) == before:
                console.progress(f"{bindings['run_dir']} was done already; nothing was changed")
            if command.report is not None:
                result = load(command.report)(run_dir=run_dir)
        if isinstance(result, str):
            console.report(result)
        wall = time.perf_counter() - started
        console.detail(
            f"{source.gin_name} took {wall:.1f} s, {time.process_time():.1f} CPU s in this process"
        )
        source.exit_with(result)

    run_main(main, source.functions())


def by_gin_name(
    functions: Iterable[str], parameters: Iterable[str], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns flags by their names in Gin, such as `pretrain.run_dir`; None where one was not given."""
    return {f"{stage}.{name}": given.get(name) for stage in functions for name in parameters}


def parse_gin_flags(known: Mapping[str, Callable[..., Any]], given: Mapping[str, Any]) -> None:
    """Registers functions with Gin under these names, and parses the Gin flags."""
    for name, function in known.items():
        gin.external_configurable(function, name=name)
    parse_gin(_GIN_FILE.value, _GIN_PARAM.value, known, _ALLOW_GIN_IMPORTS.value, given)


def _when_done(run_dir: str | None) -> int | None:
    marker = Path(run_dir or "", DONE)
    return marker.stat().st_mtime_ns if run_dir and marker.is_file() else None


def positional_texts(given: Sequence[str], names: Sequence[str]) -> dict[str, list[str]]:
    """Returns the texts of parameters that were given without their names (`Command.positional`)."""
    num_many = max(0, len(given) - len(names) + 1)
    name_of_each = [
        name.removesuffix("...")
        for name in names
        for _ in range(num_many if name.endswith("...") else 1)
    ]
    if len(given) > len(name_of_each):
        raise UserError(
            f"unexpected argument {given[len(names)]!r}; give parameters as --name=value, and "
            "--help lists them"
        )
    texts: dict[str, list[str]] = {}
    for name, text in zip(name_of_each, given, strict=False):
        texts.setdefault(name, []).append(text)
    return texts


def asks_for_help(arguments: Sequence[str]) -> bool:
    return not _HELP.isdisjoint(arguments)


def help_of(source: Arguments, command: Command, full: bool = True) -> str:
    """Returns what `--help` prints, or `--helpfull`: description, parameters, an example."""
    description, _, notes = described_function(source.function)
    required = _required(source.function)
    texts = {name: name.upper().replace("...", " ...") for name in command.positional}
    names = [t if n.removesuffix("...") in required else f"[{t}]" for n, t in texts.items()]
    usage = " ".join([sys.argv[0], *names, "[--parameter=value ...] [--gin_file=...]"])
    parts = [f"usage: {usage}", *_filled(description)]
    common = {*command.common.split(), *required}
    further: set[str] = set()
    for heading, function, kinds in source.groups():
        shown = kinds
        if command.common and not full:
            further |= inspect.signature(function).parameters.keys() & kinds.keys() - common
            shown = {name: kinds[name] for name in kinds.keys() & common}
        parts.append("\n".join([heading, *parameter_lines(function, shown)]))
    if further:
        parts += _filled(f"Also, described by --helpfull: {', '.join(sorted(further))}.")
    parts += _filled(notes)
    if full and command.notes:
        parts.append(load(command.notes)())
    if command.example:
        parts.append(f"Example:\n  {shell_lines(f'{sys.argv[0]} {command.example}')}")
    return "\n\n".join(parts)


def shell_lines(call: str) -> str:
    """Returns a long command line on several, as a shell takes it."""
    return " \\\n    ".join(textwrap.wrap(call, _HELP_WIDTH - 6, **_WHOLE_WORDS))


def _filled(text: str) -> Iterator[str]:
    """Yields the paragraphs of a text; those without indented lines are filled anew."""
    for paragraph in filter(None, text.split("\n\n")):
        yield paragraph if "\n " in paragraph else _wrapped(paragraph)


def _wrapped(text: str, indent: str = "", further_indent: str = "") -> str:
    indents: Any = {"initial_indent": indent, "subsequent_indent": further_indent or indent}
    return textwrap.fill(text, _HELP_WIDTH, **indents, **_WHOLE_WORDS)


def parameter_lines(
    function: Callable[..., object], annotations: Mapping[str, Any], prefix: str = "--"
) -> Iterator[str]:
    """Yields the lines of `--help` on the parameters of a function or dataclass in `annotations`."""
    meanings = described_function(function)[1]
    for name, parameter in inspect.signature(function).parameters.items():
        if name in annotations:
            kind = type_and_default(parameter, annotations[name])
            yield _wrapped(f"{prefix}{name} ({kind})", "  ", " " * 6)
            if name in meanings:
                yield _wrapped(" ".join(meanings[name]), " " * 6)


def type_and_default(parameter: inspect.Parameter, annotation: Any) -> str:
    if parameter.default is parameter.empty:
        return f"{described(annotation)}; required"
    # The last is the text of a dataclass's default factory.
    if parameter.default in (None, ()) or repr(parameter.default) == "<factory>":
        return f"{described(annotation).removesuffix(' or None')}; optional"
    return f"{described(annotation)}; default {parameter.default!r}"


def described_function(function: Callable[..., object]) -> tuple[str, dict[str, list[str]], str]:
    """Returns a docstring's description, the lines on each parameter, and what follows them."""
    parts = re.split(r"\n\n(?:Args|Attributes):\n", inspect.getdoc(function) or "", maxsplit=1)
    section, _, notes = parts[-1].partition("\n\n") if len(parts) > 1 else ("", "", "")
    meanings: dict[str, list[str]] = {}
    entry: list[str] = []
    for line in section.splitlines():
        match = re.match(r"  (\w+(?:, \w+)*): (.*)", line)
        if match:  # several parameters may share an entry
            entry = [match[2]]
            meanings |= dict.fromkeys(match[1].split(", "), entry)
        else:
            entry.append(line.strip())
    return _for_users(parts[0]), meanings, _for_users(notes)


def _for_users(text: str) -> str:
    """Strips Returns, Raises and Example for --help."""
    for_programs = r"(Returns|Raises|Example|Examples):\n"
    sections = re.split(r"\n\n(?=[A-Z]\w+:\n)", text)
    return "\n\n".join(section for section in sections if not re.match(for_programs, section))


def run_main(
    main: Callable[[Sequence[str]], object], functions: Iterable[Callable[..., object]] = ()
) -> None:
    """Runs `main(arguments)` under absl; see `run_command` for how the process exits.

    `functions`: those of commands whose parameters error messages may name.
    """

    def guarded(arguments: Sequence[str]) -> None:
        try:
            with exit_when_preempted():
                main(arguments)
        except UserError as error:
            # Messages name parameters as Gin and `--help` do: `evaluate.run_dir`, not `score.run_dir`.
            text = str(error)
            for function in functions:
                name, known = function.__name__, "|".join(annotations_of(function))
                named = rf"(?<![\w/.-]){name}\.(?=({known})\b)"
                text = re.sub(named, f"{gin_name_of(name)}.", text)
            if text == str(error):
                raise
            raise UserError(text) from error

    def parsed(arguments: list[str]) -> list[str]:
        # Other programs write --seed-sd where parameters are called seed_sd.
        name = re.compile(r"(?<=^--)\w[\w-]*")
        spelled = [name.sub(lambda n: n[0].replace("-", "_"), one) for one in arguments]
        try:
            return flags.FLAGS(spelled)
        except flags.UnrecognizedFlagError as error:
            cure = nearest(error.flagname, flags.FLAGS, "--help lists the flags")
            raise UserError(f"unknown flag --{error.flagname}; {cure}") from error
        except flags.Error as error:
            raise UserError(f"{error}; --help lists the flags") from error

    with _one_line_errors():
        app.run(guarded, flags_parser=parsed)


@contextlib.contextmanager
def _one_line_errors() -> Iterator[None]:
    """Exits with one line if the user, the disk, the memory or the installation is at fault."""
    try:
        yield
    except BrokenPipeError:  # the reader, such as `head`, closed the pipe
        # Flushing at exit would fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_OUTPUT_CLOSED)
    except KeyboardInterrupt:
        console.progress("stopped")
        sys.exit(130)  # as a shell reports a process that SIGINT ended
    except Exception as raised:
        error = memory_error(raised) or raised
        if isinstance(error, UserError):
            line: str | None = in_flags(str(error))
        elif isinstance(error, ModuleNotFoundError):
            package = (error.name or "").partition(".")[0]
            extra = _EXTRAS.get(package)
            other = " (or gpu, jax, jax-cuda12, jax-cuda13, jax-tpu)" * (extra == "tensorflow")
            line = extra and (
                f"this command needs the package {package}, which is not installed: pip install "
                f"'multiberts[{extra}]'{other}"
            )
        else:
            line = disk_full_line(error)
        if line is None:
            raise
        if isinstance(error, UserError) and console.is_verbose():
            traceback.print_exc()
        console.error(line)
        sys.exit(EXIT_USER_ERROR)


def _required(function: Callable[..., object]) -> set[str]:
    parameters = inspect.signature(function).parameters
    return {name for name, value in parameters.items() if value.default is value.empty}


def require_arguments(function: Callable[..., object], given: set[str]) -> None:
    missing = sorted(_required(function) - given)
    if missing:
        name = gin_name_of(function.__name__)
        kinds = {argument: described(annotations_of(function)[argument]) for argument in missing}
        choices = {argument: f" ({kind})" for argument, kind in kinds.items() if "'" in kind}
        lacking = ", ".join(f"{name}.{argument}{choices.get(argument, '')}" for argument in missing)
        cure = " ".join(f"--{argument}=..." for argument in missing)
        raise UserError(
            f"{name} lacks {lacking}; give {cure}, or {name}.{missing[0]} = ... in a --gin_file"
        )
