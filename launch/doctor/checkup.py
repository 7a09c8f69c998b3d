"""`multiberts launch doctor`: says in one screen what works here, and what to do where something does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from multiberts.launch.doctor.data_check import check_data
from multiberts.launch.doctor.device_probe import check_devices
from multiberts.launch.doctor.findings import OK, PROBLEM, WARNING, CheckResult, in_words
from multiberts.launch.doctor.machine_check import (
    check_clock,
    check_disk,
    check_machine,
    check_root,
    check_schedulers,
)
from multiberts.launch.doctor.version_conflicts import check_versions
from multiberts.pretrain.training.reference_digest import REFERENCE_DIGEST, measure_digest
from multiberts.runs.console import report
from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import PathLike

if TYPE_CHECKING:
    from multiberts.launch.tpu.client import Provisioner

SECONDS_TO_TRAIN = 300.0


def doctor(
    *,
    root: PathLike | None = None,
    data: PathLike | None = None,
    bucket: str | None = None,
    project: str | None = None,
    zones: Sequence[str] = (),
    training: bool = True,
) -> int:
    """Looks at everything a launch needs, and prints a line for each.

    Args:
      root: of an experiment, which need not exist; None: disk and clock of the current directory.
      data: folder of the tasks' data; None: not looked for.
      bucket: URL that runs of Cloud TPU are kept at; None: not asked for.
      project: of Google Cloud; None: not asked for.
      zones: of Cloud TPU that are to be used.
      training: whether to train 20 steps in portable mode, in half a minute or so, and compare the
        digest of the weights with the reference.

    Returns:
      0, or 1 if something is broken.
    """
    findings: list[CheckResult] = []
    checks: list[tuple[str, Callable[[], CheckResult | list[CheckResult]]]] = [
        ("machine", check_machine),
        ("versions", check_versions),
        ("accelerator", check_devices),
        ("schedulers", check_schedulers),
        ("disk", lambda: check_disk(root)),
        ("clock", lambda: check_clock(root)),
    ]
    if training:
        checks.append(("training", check_training))
    if root is not None:
        checks.append(("launcher", lambda: check_root(root)))
    if data is not None:
        checks.append(("data", lambda: check_data(data)))
    if bucket is not None:
        checks.append(("bucket", lambda: check_bucket(bucket)))
    if project is not None:
        checks.append(("Cloud TPU", lambda: check_project(project, zones)))
    for subject, check in checks:
        findings += _carried_out(subject, check)
    report(in_words(findings))
    report(_summary(findings))
    return 1 if any(finding.level == PROBLEM for finding in findings) else 0


def _carried_out(
    subject: str, check: Callable[[], CheckResult | list[CheckResult]]
) -> list[CheckResult]:
    """Returns a check's findings; one that breaks down is a finding itself, and the others go on."""
    try:
        found = check()
    except Exception as error:
        words = f"the check itself failed: {type(error).__name__}: {error}"
        return [CheckResult(WARNING, subject, words, "report this; the other lines hold")]
    return found if isinstance(found, list) else [found]


def _summary(findings: Sequence[CheckResult]) -> str:
    problems = sum(finding.level == PROBLEM for finding in findings)
    warnings = sum(finding.level == WARNING for finding in findings)
    if not problems and not warnings:
        return "\nAll is well. `make demo` is a first run of a few minutes."
    counts = (
        (problems, "problem", "to solve first"),
        (warnings, "warning", "that may not matter"),
    )
    parts = [f"{counted(count, name)} {rest}" for count, name, rest in counts if count]
    return f"\n{' and '.join(parts)}: what to do stands behind each arrow."


def check_training() -> CheckResult:
    """Returns whether this machine rounds as the reference, by 20 steps of training in portable mode."""
    try:
        digest = measure_digest(SECONDS_TO_TRAIN)
    except UserError as error:
        refused = _refused("training", error)
        return dataclasses.replace(refused, level=WARNING)
    if digest == REFERENCE_DIGEST:
        return CheckResult(OK, "training", f"20 steps in portable mode give the reference {digest}")
    found = f"20 steps in portable mode give {digest}, the reference is {REFERENCE_DIGEST}"
    cure = "results differ from published ones in their last bits; see docs/departures.md"
    return CheckResult(WARNING, "training", found, cure)


def check_bucket(bucket: str) -> CheckResult:
    """Returns whether a bucket is there and may be written; nothing is written."""
    from multiberts.runs.bucket.objects import Bucket

    try:
        place = Bucket(bucket)
        place.check_conditional()
        place.check_writable()
    except UserError as error:
        return _refused("bucket", error)
    return CheckResult(OK, "bucket", f"{bucket} may be read and written")


def _refused(subject: str, error: UserError) -> CheckResult:
    """Returns the check that an error stands for, with its cure."""
    found, _, cure = str(error).rpartition("; ")
    return CheckResult(PROBLEM, subject, found or cure, cure if found else "")


def check_project(
    project: str, zones: Sequence[str], provisioner: Provisioner | None = None
) -> list[CheckResult]:
    """Returns whether Cloud TPU answers for a project, and what the zones offer.

    How much of it the project's quota allows shows only when a node is asked for.

    Args:
      project: of Google Cloud.
      zones: to look into; empty: only whether the service answers.
      provisioner: None: the project's, as who is signed in here.
    """
    from multiberts.launch.tpu.client import Provisioner, TpuError

    try:
        provisioner = provisioner or Provisioner(project)
        known = provisioner.zones()
    except UserError as error:
        return [_refused("Cloud TPU", error)]
    except TpuError as error:
        cure = "check the project's name, that tpu.googleapis.com is enabled, and your role in it"
        return [CheckResult(PROBLEM, "Cloud TPU", f"project {project}: {error}", cure)]
    if not zones:
        found = (
            f"project {project} answers; {counted(len(known), 'zone')}: {', '.join(known[:8])} ..."
        )
        return [CheckResult(OK, "Cloud TPU", found)]
    findings = []
    for zone in zones:
        if zone not in known:
            found = f"project {project} has no zone {zone!r}"
            findings.append(CheckResult(PROBLEM, "Cloud TPU", found, f"one of {', '.join(known)}"))
            continue
        try:
            types = provisioner.accelerator_types(zone)
            mine = provisioner.resources(zone)
        except TpuError as error:
            cure = "check your role in the project"
            findings.append(CheckResult(PROBLEM, "Cloud TPU", f"{zone}: {error}", cure))
            continue
        offered = ", ".join(types[:6]) + (" ..." if len(types) > 6 else "")
        found = (
            f"{zone} offers {offered or 'nothing'}; {counted(len(mine), 'queued resource')} of ours"
        )
        cure = "" if types else "choose another zone"
        findings.append(CheckResult(OK if types else PROBLEM, "Cloud TPU", found, cure))
    return findings
