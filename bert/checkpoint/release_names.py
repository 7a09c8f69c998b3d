"""Names of the published MultiBERTs: `multiberts-seed_0`, `multiberts-seed_0-step_20k`, ..."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike

RELEASED_PROCEDURE = "multiberts"
# In predictions, tables and configurations.
OWN_NAME_OF_RELEASED_PROCEDURE = "base"
RELEASED_STEPS = 2_000_000

# The second form of the separators is that of the first copies on the Hugging Face hub.
_NAME = re.compile(r"multiberts-seed[_-](?P<seed>\d+)(?:-(?:step_)?(?P<thousands>\d+)k)?")
# Folders in the release's archives: they name the seed, but not the procedure.
_IN_ARCHIVE = re.compile(r"(.*/)?seed_(?P<seed>\d+)(/step_(?P<thousands>\d+)k)?")


@dataclasses.dataclass(frozen=True)
class ReleaseName:
    """Facts that a name states; None where it does not."""

    procedure: str | None
    pretrain_seed: int
    step: int | None


def release_name(pretrain_seed: int, step: int | None = None) -> str:
    """Returns the name under which the release has a checkpoint.

    Args:
      step: finished updates, in whole thousands; None: the name of the seed's last checkpoint.

    Example:
      `release_name(0, 20_000)` is `multiberts-seed_0-step_20k`.
    """
    if pretrain_seed < 0:
        raise UserError(f"pretrain_seed is {pretrain_seed}; names of the release start at seed 0")
    if step is None:
        return f"{RELEASED_PROCEDURE}-seed_{pretrain_seed}"
    if step < 0 or step % 1000:
        raise UserError(
            f"step {step} has no name as the release writes them (whole thousands, such as "
            "step_20k); choose the directory's name yourself"
        )
    return f"{RELEASED_PROCEDURE}-seed_{pretrain_seed}-step_{step // 1000}k"


def parse_release_name(directory: PathLike) -> ReleaseName | None:
    """Reads procedure, seed and step of a checkpoint from the name of its directory.

    Understood are the release's names, those of its copies on the Hugging Face hub (also within
    that hub's local cache), and `seed_0` or `seed_0/step_20k`, which the archives unpack to.

    Args:
      directory: a checkpoint's directory; only its name counts.

    Returns:
      None where the name says nothing. A MultiBERTs name without a step is that of the last one.
    """
    path = Path(directory).resolve()
    if path.parent.name == "snapshots":  # .../models--google--multiberts-seed_0/snapshots/<hash>
        path = path.parent.parent
    match = _NAME.fullmatch(path.name.rsplit("--", 1)[-1])
    if match:
        last = 1000 * int(match["thousands"]) if match["thousands"] else RELEASED_STEPS
        return ReleaseName(RELEASED_PROCEDURE, int(match["seed"]), last)
    if match := _IN_ARCHIVE.fullmatch(f"{path.parent.name}/{path.name}"):
        step = 1000 * int(match["thousands"]) if match["thousands"] else None
        return ReleaseName(None, int(match["seed"]), step)
    return None
