"""What makes a run the run it is: all that changes its numbers, as one SHA-256.

The stage, every parameter that changes its numbers, what its input files hold, and the identities of
the runs before it. Where files and directories lie does not count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from multiberts.launch.plan.input_digests import InputDigests
from multiberts.launch.plan.planned_run import Output

# Parameters that change speed or safety but no number, so they are no part of a run's identity.
NOT_IN_IDENTITY = {
    "save_state_every_steps",
    "log_every_steps",
    "compile_step",
    "keep_last_states",
    "evaluate_every_steps",
    "spike_threshold",
    "tensorboard",
    "devices",
    "num_workers",
    "shard_bytes",
    "runner",
    "pipeline_options",
}

# Says where datasets lie, not what they hold: counts as absent.
_PLACE_OF_DATASETS = "datasets_dir"

# Parameters that name files of the user; what these hold counts, not where they lie.
INPUT_PARAMETERS = {
    "prepare": {"sources", "vocabulary"},
    "pretrain": {"evaluation_corpus"},
    "finetune": {"data_dir", "train_files", "dev_files", "evaluation_files", "winogender_dir"},
    "score": set(),
    "report": {"truth"},
    "paper": set(),
    "make_world": set(),
    "import_checkpoint": {"checkpoint"},
    "import_predictions": {"source", "questions", "occupations"},
}


def input_parameters(stage: str, parameters: Mapping[str, Any]) -> set[str]:
    """The parameters of a call that name files of the user."""
    inputs = INPUT_PARAMETERS[stage]
    # Sources of TensorFlow Datasets are names; `prepare` keeps what the datasets hold.
    is_by_name = stage == "prepare" and parameters["source_format"] == "tfds"
    return inputs - {"sources"} if is_by_name else inputs


def files_of(sources: Sequence[Any]) -> list[Any]:
    """Sources with patterns replaced by the files that fit them; outputs of other runs stay."""
    from multiberts.pretrain.corpus.documents import expand_sources

    return [
        found
        for source in sources
        for found in ([source] if isinstance(source, Output) else expand_sources([source]))
    ]


def identity_of(
    stage: str,
    parameters: Mapping[str, Any],
    inputs: Collection[str],
    digests: InputDigests | None = None,
) -> str:
    """SHA-256 over what changes the run's numbers; of inputs, what they hold.

    Args:
      stage: key of `launch.plan.planned_run.STAGES`.
      parameters: the stage's arguments, defaults included.
      inputs: the parameters that name files of the user.
      digests: gives what those hold; None: reads them.

    Returns:
      The identity in hexadecimal. A run before this one counts by its own, which is not made again.
    """
    digests = digests or InputDigests()
    parts = [stage]
    for name in sorted(parameters.keys() - NOT_IN_IDENTITY):
        value = None if name == _PLACE_OF_DATASETS else parameters[name]
        parts.append(f"{name} = {_canonical(value, digests if name in inputs else None)}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _canonical(value: Any, digests: InputDigests | None) -> str:
    """A value's spelling: the same for equal values, other for values that give other numbers."""
    if isinstance(value, Output):
        return f"<{value.run.identity}/{value.inside}>"
    if isinstance(value, Mapping):
        items = (f"{key!r}: {_canonical(value[key], digests)}" for key in sorted(value))
        return f"{{{', '.join(items)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join([_canonical(item, digests) for item in value])}]"
    # A name in TensorFlow Datasets is no path.
    if digests is not None and value is not None and not str(value).startswith("tfds:"):
        return f"<{digests.of(str(value))}>"
    if isinstance(value, float) and value.is_integer():
        return repr(int(value))
    return repr(value)
