"""Roles of settings, as metadata of their fields; they decide what identifies a run.

A setting names files, selects data, names the checkpoint, or only changes speed; one without a role affects
training.
"""

import dataclasses

FILES, DATA, NAMES, SPEED = ({"role": role} for role in ("files", "data", "names", "speed"))


def fields_with_role(settings: type, role: str | None) -> tuple[str, ...]:
    """Returns the names of the fields; None: those without a role."""
    fields = dataclasses.fields(settings)
    return tuple(field.name for field in fields if field.metadata.get("role") == role)
