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
from multiberts.runs.parameters import PositiveInt

if TYPE_CHECKING:
    from multiberts.launch.tpu.client import Provisioner, Quotas

SECONDS_TO_TRAIN = 300.0


def doctor(
    *,
    root: PathLike | None = None,
    data: PathLike | None = None,
    bucket: str | None = None,
    project: str | None = None,
    zones: Sequence[str] = (),
    accelerator_type: str | None = None,
    spot: bool = True,
    max_nodes: PositiveInt | None = None,
    external_ips: bool = True,
    training: bool = True,
) -> int:
    """Looks at everything a launch needs, and prints a line for each.

    Args:
      root: of an experiment, which need not exist; None: disk and clock of the current directory.
      data: folder of the tasks' data; None: not looked for.
      bucket: URL that runs of Cloud TPU are kept at; None: not asked for.
      project: of Google Cloud; None: not asked for.
      zones: of Cloud TPU that are to be used.
      accelerator_type: whose quotas are looked up in these zones, such as `v5litepod-4`; None: of none.
      spot: whether its nodes are preemptible, which have quotas of their own.
      max_nodes: how many nodes there are to be at a time; None: at least one.
      external_ips: whether each node takes an external address.
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
    if project is not None and accelerator_type is not None:
        nodes, addresses = max_nodes or 1, external_ips
        checks.append(
            (
                "quota",
                lambda: check_quotas(project, zones, accelerator_type, spot, nodes, addresses),
            )
        )
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

    Args:
      project: of Google Cloud.
      zones: to look into; empty: only whether the service answers.
      provisioner: None: the project's, as who is signed in here.
    """
    from multiberts.launch.tpu.client import RIGHTS, Provisioner, TpuError, needs_person

    try:
        provisioner = provisioner or Provisioner(project)
        known = provisioner.zones()
    except UserError as error:
        return [_refused("Cloud TPU", error)]
    except TpuError as error:
        cure = needs_person(str(error)) or RIGHTS
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


def check_quotas(
    project: str,
    zones: Sequence[str],
    accelerator_type: str,
    spot: bool,
    nodes: int,
    external_ips: bool,
    quotas: Quotas | None = None,
) -> list[CheckResult]:
    """Returns how many nodes a project's quotas allow, and what to ask for where that is too few.

    Args:
      project: of Google Cloud.
      zones: that are to be used.
      accelerator_type: of the nodes.
      spot: whether they are preemptible.
      nodes: wanted at a time, in all zones together.
      external_ips: whether each takes an external address.
      quotas: None: the project's, as who is signed in here.
    """
    from multiberts.launch.tpu.client import Quotas, TpuError, region_of
    from multiberts.launch.tpu.settings import google_names

    page = f"{google_names()['console']}?project={project}"
    size = int(accelerator_type.rpartition("-")[2])
    findings, allowed = [], 0
    try:
        quotas = quotas or Quotas(project)
        for region in dict.fromkeys(map(region_of, zones)):
            inside = [zone for zone in zones if region_of(zone) == region]
            here = 0
            for zone in inside:
                found = quotas.of_slices(accelerator_type, spot, zone)
                limits = [one for one in found if one.limit is not None]
                if not found:
                    words = f"{zone}: no quota is known that {accelerator_type} counts against"
                    findings.append(CheckResult(WARNING, "quota", words, f"look for it at {page}"))
                    continue
                least = min(limits, key=lambda one: one.limit or 0, default=None)
                room = nodes if least is None else (least.limit or 0) // size
                here += room
                words = f"{zone}: room for {counted(room, 'node')} of {accelerator_type}"
                words += (
                    "" if least is None else f" ({least.name} is {least.limit} in {least.place})"
                )
                cure = f"ask for {size} or a multiple at {page}; a person decides on it"
                findings.append(_judged_quota(words, room, cure))
            address = quotas.of_addresses(inside[0]) if external_ips else None
            if address is not None:
                free = (address.limit or 0) - (address.used or 0)
                words = (
                    f"{region}: {free} of {address.limit} external addresses ({address.name}) free"
                )
                cure = f"each node takes one: ask for more at {page}, or set external_ips = False"
                findings.append(_judged_quota(words, free, cure))
                here = min(here, max(0, free))
            allowed += here
    except UserError as error:
        return [*findings, _refused("quota", error)]
    except TpuError as error:
        cure = f"enable the Cloud Quotas API, or look at {page}"
        return [*findings, CheckResult(WARNING, "quota", f"cannot be read: {error}", cure)]
    if 0 < allowed < nodes:
        words = f"the quotas allow {counted(allowed, 'node')} at a time, {nodes} are wanted"
        cure = "the others wait: ask for more, name further zones, or lower max_nodes"
        findings.append(CheckResult(WARNING, "quota", words, cure))
    return findings


def _judged_quota(words: str, room: int, cure: str) -> CheckResult:
    return (
        CheckResult(OK, "quota", words) if room > 0 else CheckResult(PROBLEM, "quota", words, cure)
    )
