"""Is what is asked for on offer? Looked up before anything is created."""

from __future__ import annotations

from collections.abc import Sequence

from multiberts.launch.tpu.client import Provisioner, TpuError
from multiberts.launch.tpu.reconcile import TpuSettings
from multiberts.runs.bucket.objects import Bucket
from multiberts.runs.errors import UserError

_SHOWN = 12


def preflight(provisioner: Provisioner, settings: TpuSettings) -> None:
    """Refuses a request that could never be met; creates nothing.

    Args:
      provisioner: of the project.
      settings: zones, accelerator, software and bucket.

    Raises:
      UserError: no such zone, accelerator or software; a bucket that is missing or may not be
        written; a project that is unknown or has the service switched off.
    """
    if not settings.zones:
        raise UserError(
            "zones is empty, expected at least one, such as ['us-central2-b']; name some"
        )
    place = Bucket(settings.bucket)
    place.check_conditional()
    place.check_writable()
    try:
        known = provisioner.zones()
        for zone in settings.zones:
            _refuse_unless_in(zone, known, "zones", f"the zones of project {provisioner.project}")
            _refuse_unless_in(
                settings.accelerator_type,
                provisioner.accelerator_types(zone),
                "accelerator_type",
                f"what {zone} offers",
            )
            _refuse_unless_in(
                settings.runtime_version,
                provisioner.runtime_versions(zone),
                "runtime_version",
                f"what {zone} offers",
            )
    except TpuError as error:
        raise UserError(
            f"Cloud TPU refuses project {provisioner.project!r} ({error}); check project and zones, and "
            "that the Cloud TPU API is enabled and you have the role TPU Admin"
            if error.kind != "Unreachable"
            else f"Cloud TPU does not answer ({error}); try again later"
        ) from error


def _refuse_unless_in(wanted: str, offered: Sequence[str], name: str, whose: str) -> None:
    if wanted not in offered:
        shown = ", ".join(offered[:_SHOWN]) + (", ..." if len(offered) > _SHOWN else "")
        raise UserError(
            f"{name} names {wanted!r}, which is not among {whose} ({shown or 'none'}); correct it"
        )
