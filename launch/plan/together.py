"""Which seeds of pre-training one program trains together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable

from multiberts.bert.model.configuration import BertConfig
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.pretrain.training.recipe import OF_A_SEED
from multiberts.runs.environment import JAX
from multiberts.runs.errors import UserError

# How many seeds an accelerator trains in one program, and up to which hidden size of their model: kernels of
# larger ones keep it busy.
_SEEDS_TOGETHER, _LARGEST_TOGETHER = 8, 512


def most_together(run: PlannedRun, wanted: int | None, gains: bool) -> int:
    """Returns the most pre-training seeds, of a run's kind, that one program trains.

    Args:
      run: of pre-training.
      wanted: what the user set; None: 8 for a small model.
      gains: whether this is JAX on accelerators.
    """
    if wanted is not None or not gains:
        return wanted or 1
    size = run.parameters["model"].get("hidden_size", BertConfig.hidden_size)
    return _SEEDS_TOGETHER if size <= _LARGEST_TOGETHER else 1


def check_seeds_together(wanted: int | None, library: str | None) -> None:
    """Refuses several seeds per program for a library that trains one; None: it is not known yet.

    Raises:
      UserError: naming the option.
    """
    if (wanted or 1) > 1 and library not in (JAX, None):
        raise UserError(
            f"run.engine_options['seeds_together'] is {wanted}, but workers compute with "
            f"{library}, which trains one seed per process; leave it out or add 'compute': 'jax'"
        )


def procedure_key(run: PlannedRun) -> str:
    """Returns what seeds of pre-training share that one program can train."""
    shared = {name: run.parameters[name] for name in run.parameters if name not in OF_A_SEED}
    return repr(sorted(shared.items()))


def number_of_programs(runs: Iterable[PlannedRun], most: Callable[[PlannedRun], int]) -> int:
    """Returns how many programs train all runs at a time.

    Args:
      runs: of pre-training.
      most: how many runs of a kind one program trains, at most.
    """
    kinds = Counter((procedure_key(run), most(run)) for run in runs)
    return sum(math.ceil(count / largest) for (_, largest), count in kinds.items())
