"""A run in a plan: its stage, arguments and directory."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from multiberts.bert.vocabulary import Vocabulary
from multiberts.runs.bucket.objects import is_url
from multiberts.runs.errors import UserError
from multiberts.runs.files import is_name_inside
from multiberts.runs.identity import Identity
from multiberts.runs.parameters import with_leaves
from multiberts.runs.plan_marker import is_done

# The module of each stage's function; they import nothing heavy until the function is called.
STAGES = {
    "make_world": "multiberts.pretrain.world.synthetic_world",
    "prepare": "multiberts.pretrain.corpus.preparation",
    "pretrain": "multiberts.pretrain.training.pretraining",
    "finetune": "multiberts.finetune.finetuning",
    "import_predictions": "multiberts.launch.published_predictions",
    "score": "multiberts.evaluate.scoring",
    "report": "multiberts.report.reporting",
    "paper": "multiberts.papers.multiberts.reproduction",
}


@dataclass(frozen=True)
class Output:
    """A path inside the directory of another run."""

    run: PlannedRun
    inside: str = ""

    @property
    def identity(self) -> str:
        return f"{self.run.identity}/{self.inside}"


@dataclass(frozen=True)
class PlannedRun:
    """One call of one stage.

    Attributes:
      name: name for people, e.g. `pretrain base seed 0`.
      parameters: the stage's keyword arguments except `run_dir`; an `Output` is the path of another
        run's output.
      parents: runs that must be done first.
      identity: SHA-256 in hexadecimal of everything that decides the numbers.
      path: directory relative to the experiment's root.
      facts: the checkpoint's `procedure`, `pretrain_seed` and `checkpoint_step`, for fine-tuning only.
      promises: identities of its inputs that exist, see `runs.identity.promised`.
    """

    stage: str
    name: str
    parameters: Mapping[str, Any] = field(repr=False, compare=False)
    parents: tuple[PlannedRun, ...] = field(repr=False, compare=False)
    identity: str
    path: str
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    promises: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuses a directory outside the root, which a name in a configuration may cause."""
        if not is_name_inside(self.path) or not self.path.isprintable():
            raise UserError(
                f"{self.name} would lie in {self.path!r}, expected printable characters and no place "
                "outside the experiment's root; choose other names of corpora, procedures and tasks"
            )

    def arguments(self, root: str | Path) -> dict[str, Any]:
        """Returns the stage's keyword arguments, with `run_dir` and paths of parents.

        Args:
          root: a folder, or the URL of a folder in a bucket.
        """
        base = root if is_url(root) else Path(root)  # Path would remove a slash after gs:

        def located(leaf: Any) -> Any:
            if isinstance(leaf, Output):
                return f"{base}/{Path(leaf.run.path, leaf.inside)}"
            return leaf

        return {"run_dir": f"{base}/{self.path}", **with_leaves(located, self.parameters)}

    def done(self, root: str | Path) -> bool:
        return is_done(Path(root) / self.path)


def fitting_name(name: str) -> str:
    """Returns a name for a file or folder: a long one's end, after a hash of the whole."""
    if len(name.encode()) <= 200:  # of 255, which leaves room for endings
        return name
    return f"{hashlib.sha256(name.encode()).hexdigest()[:12]}-{name[-40:]}"


def kept_steps(run: PlannedRun) -> list[int]:
    """Returns the steps whose checkpoints a pre-training run saves."""
    parameters = run.parameters
    return sorted({*(parameters.get("checkpoint_steps") or ()), parameters["num_steps"]})


def stage_function(stage: str) -> Callable[..., None]:
    """Imports the function of a stage: a key of `STAGES`, or `module:function`."""
    module, _, name = stage.rpartition(":")
    function: Callable[..., None] = getattr(importlib.import_module(module or STAGES[stage]), name)
    return function


def stage_identity(stage: str) -> Identity:
    """Returns the `IDENTITY` of the stage's module; without one every parameter counts."""
    module = stage.rpartition(":")[0] or STAGES[stage]
    return getattr(importlib.import_module(module), "IDENTITY", Identity())


def vocabulary_size(corpus: Any) -> int | None:
    """Returns the vocabulary size of a planned corpus: an upper bound if the vocabulary will be learned.

    None if it is not known before the corpus exists, and for a path, which is not read.

    Examples:
      >>> vocabulary_size("corpora/wiki") is None
      True
    """
    if not isinstance(corpus, Output):
        return None
    parameters = corpus.run.parameters
    vocabulary = parameters.get("vocabulary")
    if vocabulary is None and "store" in parameters.get("source_format", ()):
        return vocabulary_size(parameters["sources"][0])  # token stores have a vocabulary
    if vocabulary is None:
        return parameters.get("vocabulary_size")
    if isinstance(vocabulary, Output):
        return vocabulary_size(vocabulary)
    with contextlib.suppress(UserError):
        return Vocabulary.open(vocabulary).size
    return None
