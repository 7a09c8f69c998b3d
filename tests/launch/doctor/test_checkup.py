"""The doctor's lines: versions that clash, libraries that hang or crash, lacking data, full disks."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests

from multiberts.launch.doctor import checkup, device_probe
from multiberts.launch.doctor.checkup import (
    check_bucket,
    check_project,
    check_quotas,
    check_training,
    doctor,
)
from multiberts.launch.doctor.data_check import check_data, tasks_by_state
from multiberts.launch.doctor.device_probe import (
    judge,
    judge_gpus,
    parse_gpus,
    start_probe,
    take_answer,
)
from multiberts.launch.doctor.findings import OK, PROBLEM, WARNING, CheckResult, in_words
from multiberts.launch.doctor.machine_check import bytes_needed, check_clock, check_disk, check_root
from multiberts.launch.doctor.version_conflicts import (
    check_versions,
    declared_conflicts,
    installed_versions,
)
from multiberts.launch.tpu.client import Quotas
from multiberts.launch.workers.mark import mark_of_this_process
from multiberts.pretrain.training.reference_digest import REFERENCE_DIGEST
from multiberts.tests.launch.launchers import marked_process
from multiberts.tests.launch.made_up import MadeUp
from multiberts.tests.patience import PATIENCE


def test_what_packages_declare_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = tmp_path / "keras-99.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(
        "Metadata-Version: 2.1\nName: keras\nVersion: 99.0\n"
        "Requires-Dist: numpy>=1\nRequires-Dist: absl-py<1; python_version >= '3'\n"
        "Requires-Dist: no-such-package\nRequires-Dist: neither; extra == 'more'\n"
    )
    assert declared_conflicts(installed_versions()) == []
    monkeypatch.syspath_prepend(str(tmp_path))
    (finding,) = declared_conflicts(installed_versions())
    assert "keras needs no-such-package, " in finding.found
    assert "keras needs absl-py<1, not " in finding.found
    assert "neither" not in finding.found and "numpy" not in finding.found


def test_this_environment_has_no_problem() -> None:
    assert [finding for finding in check_versions() if finding.level == PROBLEM] == []


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("import time; time.sleep(10**6)", {"error": "no answer within 1 s"}),
        ("import os; os.abort()", {"error": "importing it ends the process (SIGABRT)"}),
        (
            "import no_such_module",
            {"error": "ModuleNotFoundError: No module named 'no_such_module'"},
        ),
        ("print('noise'); print('devices: {\"kinds\": {\"CPU\": 1}}')", {"kinds": {"CPU": 1}}),
    ],
)
def test_a_library_that_hangs_or_crashes_takes_nothing_with_it(
    script: str, expected: dict[str, object]
) -> None:
    process = start_probe(script)
    # The limit is for the one that hangs; the others may have a slow machine.
    assert take_answer(process, 1 if "sleep" in script else PATIENCE) == expected
    assert process.poll() is not None


@pytest.mark.slow
def test_this_machine_trains_in_portable_mode() -> None:
    """Whether it gives the reference digest depends on the machine; that it says so does not."""
    finding = check_training()
    assert "20 steps in portable mode give" in finding.found
    assert (finding.level == OK) == ("give the reference" in finding.found)


@pytest.mark.parametrize("digest", [REFERENCE_DIGEST, "0123456789abcdef"])
def test_a_digest_is_compared_with_the_reference(
    monkeypatch: pytest.MonkeyPatch, digest: str
) -> None:
    monkeypatch.setattr(checkup, "measure_digest", lambda seconds: digest)
    finding = check_training()
    assert finding.level == (OK if digest == REFERENCE_DIGEST else WARNING)
    assert digest in finding.found and REFERENCE_DIGEST in finding.found


def test_training_that_takes_too_long_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "SECONDS_TO_TRAIN", 0.01)
    finding = check_training()
    assert finding.level == WARNING and "took more than 0.01 s" in finding.found and finding.cure


@pytest.mark.parametrize(
    ("answer", "expected", "level"),
    [
        ({"version": "2.21.0", "kinds": {"CPU": 1}}, "CPU", OK),
        ({"version": "2.21.0", "kinds": {"CPU": 1}}, "GPU", PROBLEM),
        ({"version": "2.21.0", "kinds": {"CPU": 1, "GPU": 8}, "cuda": "12.5.1"}, "GPU", OK),
        ({"version": "0.10", "kinds": {"CUDA": 2}}, "GPU", OK),
        ({"version": "2.20.0", "kinds": {"CPU": 1}}, "TPU", PROBLEM),
        ({"error": "no answer within 120 s"}, "TPU", PROBLEM),
    ],
)
def test_a_library_must_see_what_is_there(
    answer: dict[str, object], expected: str, level: str
) -> None:
    finding = judge("TensorFlow", answer, expected)
    assert finding.level == level
    if level == PROBLEM:
        extra = {"GPU": "gpu", "TPU": "jax-tpu"}[expected]
        assert f"'.[{extra}]'" in finding.cure


def test_what_nvidia_smi_lists() -> None:
    gpus = parse_gpus(
        ["NVIDIA H200, 570.86, 143771, 4", "NVIDIA A100-SXM4-40GB, MIG 1g, 570.86, 40960, [N/A]"]
    )
    assert [gpu.memory for gpu in gpus] == [143771, 40960]
    assert gpus[1].name == "NVIDIA A100-SXM4-40GB, MIG 1g" and gpus[1].memory_used == 0
    _, quiet = judge_gpus(gpus)
    assert quiet is not None and quiet.level == OK and "2 x NVIDIA H200, 140 GiB" in quiet.found
    _, busy = judge_gpus(parse_gpus(["NVIDIA H200, 570.86, 143771, 99000"]))
    assert busy is not None and busy.level == WARNING
    assert judge_gpus([]) == ([], None)


def test_data_are_complete_partial_or_absent(tmp_path: Path) -> None:
    for name in ("train.tsv", "dev.tsv.gz"):
        path = tmp_path / "glue" / "RTE" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("there")
    (tmp_path / "glue" / "CoLA").mkdir()
    (tmp_path / "glue" / "CoLA" / "train.tsv").write_text("there")
    # Of no bytes: a download that failed.
    (tmp_path / "glue" / "CoLA" / "dev.tsv").touch()
    complete, partial, absent = tasks_by_state(tmp_path)
    assert complete == ["RTE"] and partial == {"CoLA": ["dev.tsv"]}
    assert "MNLI" in absent and "Winogender" in absent
    levels = {finding.level: finding.found for finding in check_data(tmp_path)}
    found = [finding.found for finding in check_data(tmp_path)]
    assert levels[OK].endswith(": RTE") and "CoLA lacks dev.tsv" in found
    assert check_data(tmp_path / "none")[0].level == PROBLEM
    (tmp_path / "empty").mkdir()
    assert check_data(tmp_path / "empty")[0].level == PROBLEM


def test_the_shared_data(shared_data: Path) -> None:
    complete, partial, _ = tasks_by_state(shared_data)
    assert {"CoLA", "SST-2", "MRPC", "STS-B", "RTE", "WNLI", "Winogender"} <= set(complete)
    assert {"MNLI", "QNLI", "QQP"} <= set(partial)


def test_disk_is_judged_by_the_runs_that_are_done(tmp_path: Path) -> None:
    made = MadeUp(tmp_path / "root", time.time())
    seeds = [made.add_seed(number) for number in range(4)]
    assert bytes_needed(made.root) is None
    made.write_plan()
    assert bytes_needed(made.root) is None
    made.finish(seeds[0])
    (made.root / seeds[0].path / "weights").write_bytes(bytes(1000))
    marker = (made.root / seeds[0].path / "DONE").stat().st_size
    assert bytes_needed(made.root) == 3 * (1000 + marker)
    assert "the plan needs some" in check_disk(made.root).found
    # A file with a hole, larger than any disk.
    os.truncate(made.root / seeds[0].path / "weights", 2**42)
    assert check_disk(made.root).level == PROBLEM


def test_clock_and_launcher(tmp_path: Path) -> None:
    assert check_clock(tmp_path).level == OK and list(tmp_path.iterdir()) == []
    assert check_clock(tmp_path / "not" / "yet").level == OK
    assert check_root(tmp_path).level == OK
    mark = mark_of_this_process(str(tmp_path), "gone")
    mark = dataclasses.replace(mark, created=mark.created - 3600)
    process = marked_process(mark.to_string())
    try:
        finding = check_root(tmp_path)
        assert finding.level == PROBLEM and "launch reap" in finding.cure
    finally:
        process.kill()
        process.wait()


def test_buckets(tmp_path: Path) -> None:
    assert check_bucket(f"file://{tmp_path}/bucket").level == OK
    finding = check_bucket("no-bucket")
    assert finding.level == PROBLEM and "gs://" in finding.found + finding.cure


def test_zones_are_looked_up_with_the_service(tmp_path: Path) -> None:
    pytest.importorskip("google.cloud.tpu_v2", reason="needs google-cloud-tpu")
    from multiberts.launch.tpu.client import Provisioner
    from multiberts.tests.launch.tpu.rehearsal.service import TpuService

    with TpuService(
        zones={"z-a": ("v4-8",), "z-b": ("v4-8",)}, runtime_versions=("made-up",), folder=tmp_path
    ) as service:
        provisioner = Provisioner("made-up", service.client())
        first, second = check_project("made-up", ["z-a", "z-c"], provisioner)
        (every,) = check_project("made-up", [], provisioner)
    assert first.level == OK and "z-a offers v4-8" in first.found
    assert second.level == PROBLEM and second.cure == "one of z-a, z-b"
    assert every.level == OK and "2 zones" in every.found


@pytest.fixture
def quotas() -> Iterator[Quotas]:
    """A server that answers as Google's pages document it for new projects, by reports of users."""
    limits = {
        "TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI": [
            {"applicableLocations": ["us-a1-a", "us-a1-b", "us-b1-a"], "details": {"value": "4"}},
            {"dimensions": {"zone": "us-b1-a"}, "details": {"value": "16"}},
            {"dimensions": {"zone": "us-c1-a"}, "details": {"value": "0"}},
        ],
        # Another one of a similar name, which is for larger slices.
        "TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI": [{"details": {"value": "1000"}}],
        "TPUV6EPreemptiblePerProjectPerZoneForTPUAPI": [{"details": {"value": "16"}}],
        "TPUV6EPreemptiblePerProjectPerRegionForTPUAPI": [
            {"dimensions": {"region": "us-a1"}, "details": {"value": "0"}},
            {"details": {"value": "-1"}},
        ],
    }
    entries = [{"quotaId": name, "dimensionsInfos": infos} for name, infos in limits.items()]
    service = "/v1/projects/p/locations/global/services/tpu.googleapis.com/quotaInfos"
    answers: dict[str, object] = {
        service: {"quotaInfos": entries[:2], "nextPageToken": "two"},
        f"{service}?pageSize=500&pageToken=two": {"quotaInfos": entries[2:]},
    }
    for region, used in (("us-a1", 4), ("us-b1", 1), ("us-c1", 0)):
        quota = {"metric": "IN_USE_ADDRESSES", "limit": 4.0, "usage": float(used)}
        other = {"metric": "CPUS", "limit": 24.0, "usage": 0.0}
        answers[f"/compute/v1/projects/p/regions/{region}"] = {"quotas": [other, quota]}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            refusal = {"error": {"message": f"no permission for {self.path}"}}
            self.send_response(200 if self.path in answers else 403)
            self.end_headers()
            self.wfile.write(json.dumps(answers.get(self.path, refusal)).encode())

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield Quotas("p", requests.Session(), f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()


def test_quotas_say_how_many_nodes_there_can_be(quotas: Quotas) -> None:
    def check(*zones: str, slices: str = "v5litepod-4", nodes: int = 1, **more: bool) -> list[Any]:
        return check_quotas("p", zones, slices, True, nodes, more.get("addresses", True), quotas)

    page = "https://console.cloud.google.com/iam-admin/quotas?project=p"
    zone, address = check("us-b1-a")
    assert (zone.level, address.level) == (OK, OK)
    assert zone.found.startswith("us-b1-a: room for 4 nodes")
    assert "TPUV5sPreemptibleLitepodS" in zone.found
    assert address.found.startswith("us-b1: 3 of 4 ") and "IN_USE_ADDRESSES" in address.found
    # One machine counts as serving: 4 chips per zone are one half of a v5litepod-8.
    [zone] = check("us-a1-b", slices="v5litepod-8", addresses=False)
    assert zone.level == PROBLEM and "room for 0 nodes" in zone.found and "is 4 in" in zone.found
    assert zone.cure.startswith("ask for 8 ") and page in zone.cure
    [zone] = check("us-c1-a", addresses=False)
    assert zone.level == PROBLEM and "is 0 in us-c1-a" in zone.found
    # All addresses are in use.
    zone, address = check("us-a1-a")
    assert (zone.level, address.level) == (OK, PROBLEM)
    assert "external_ips = False" in address.cure
    # A region's quota holds as well as the zone's.
    zone, _ = check("us-a1-a", slices="v6e-8")
    assert zone.level == PROBLEM and "PerRegionForTPUAPI is 0 in us-a1" in zone.found
    assert check("us-b1-a", slices="v6e-8")[0].found.startswith("us-b1-a: room for 2 nodes")
    assert check("us-b1-a", nodes=3)[-1].level == OK
    assert re.search(r"\b3 nodes .*\b4\b", check("us-b1-a", nodes=4)[-1].found)
    [unknown] = check("us-b1-a", slices="v2-8", addresses=False)
    assert unknown.level == WARNING and "no quota is known that v2-8" in unknown.found
    [unread] = check("us-q1-a", slices="v2-8")[1:]
    assert unread.level == WARNING and "no permission for" in unread.found and page in unread.cure


def test_lines_fit_and_tell_the_cure() -> None:
    text = in_words(
        [
            CheckResult(OK, "disk", "fine"),
            CheckResult(PROBLEM, "GPU", "words " * 40, "do this " * 20),
        ],
        70,
    )
    lines = text.splitlines()
    assert max(map(len, lines)) <= 70
    assert lines[0].split() == ["ok", "disk", "fine"] and lines[1].startswith("problem  GPU ")
    assert sum("-> do this" in line for line in lines) == 1


def test_the_command_prints_one_screen_and_its_status_tells_of_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Importing the real libraries is slow, and is not what this is about.
    monkeypatch.setattr(device_probe, "LIBRARIES", {"json": ("json", _PROBE)})
    monkeypatch.setattr(checkup, "measure_digest", lambda seconds: "0123456789abcdef")
    assert doctor(root=tmp_path) == 0
    said = capsys.readouterr().out
    for subject in (
        "machine",
        "Python",
        "versions",
        "json",
        "disk",
        "clock",
        "training",
        "launcher",
    ):
        assert f"  {subject} " in said, subject
    assert len(said.splitlines()) < 40
    assert doctor(root=tmp_path, data=tmp_path / "none", training=False) == 1
    assert "1 problem to solve first" in capsys.readouterr().out


_ANSWER = {"version": "1", "kinds": {"CPU": 1, "GPU": 1, "TPU": 1}}
_PROBE = f"print('devices: ' + {json.dumps(_ANSWER)!r})"
