"""Runs and inputs in buckets, against the API of Cloud Storage over HTTP and against folders."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from multiberts.runs.bucket.copies import fetch, local_arguments, push_finished
from multiberts.runs.bucket.lease import Lease, LeaseLostError
from multiberts.runs.bucket.mirror import MANIFEST, Mirror, read_manifest
from multiberts.runs.bucket.objects import Bucket, is_url
from multiberts.runs.command_line.command import run_main
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.files import remove, write_atomically
from multiberts.runs.preemption import PreemptedError, preemption_notice
from multiberts.tests.pretrain.conftest import MODEL
from multiberts.tests.tools import warm
from multiberts.tests.tools.patience import PATIENCE

pytestmark = [pytest.mark.seconds, pytest.mark.usefixtures("mirrors")]

ROOT = Path(__file__).resolve().parent.parent.parent.parent


@pytest.fixture(params=["gs", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A URL that may be written: of the fake Cloud Storage, or of a folder."""
    if request.param == "file":
        return f"file://{tmp_path}/bucket/run"
    request.getfixturevalue("cloud_storage")
    return "gs://ours/folder/run"


def on_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("RUNS_MIRROR", str(tmp_path / f"mirror of {name}"))


def test_what_is_a_url() -> None:
    assert is_url("gs://bucket/x") and is_url("file:///x") and is_url("memory://x")
    for other in ("runs/a", "/runs/a", "data:glue/RTE", "tfds:wikipedia", 3, "https://x.org/y"):
        assert not is_url(other)
    with pytest.raises(UserError, match="'gs://'"):
        Bucket("gs://")


def test_objects_are_what_was_written(place: str, tmp_path: Path) -> None:
    bucket = Bucket(place)
    assert bucket.read("a") is None
    assert bucket.list() == {}
    big = os.urandom(6 * 2**20)  # above the size of uploads in one request
    (tmp_path / "big").write_bytes(big)
    bucket.write("a", b"one")
    bucket.put(tmp_path / "big", "deep/er/big")
    assert bucket.read("a") == b"one"
    bucket.get("deep/er/big", tmp_path / "new" / "copy")
    assert (tmp_path / "new" / "copy").read_bytes() == big
    assert {name: facts["size"] for name, facts in bucket.list().items()} == {
        "a": 3,
        "deep/er/big": len(big),
    }
    bucket.remove(["a", "a", "never there"])
    assert list(bucket.list()) == ["deep/er/big"]


def test_a_condition_lets_one_of_two_writers_through(place: str) -> None:
    first = Bucket(place)
    version = first.write_if("x", b"one", None)
    assert version is not None
    assert first.write_if("x", b"two", None) is None
    assert first.read_version("x") == (b"one", version)
    newer = first.write_if("x", b"two", version)
    assert newer is not None
    assert first.write_if("x", b"three", version) is None
    first.remove_if("x", version)
    assert first.read("x") == b"two"
    first.remove_if("x", newer)
    assert first.read("x") is None


def test_a_lost_answer_is_no_lost_write(cloud_storage: Any) -> None:
    bucket = Bucket("gs://ours/x")
    cloud_storage.lost_answers = 1
    version = bucket.write_if("lease", b"mine", None)
    assert version == str(cloud_storage.objects["ours", "x/lease"][1])
    assert cloud_storage.written() == ["x/lease"]


def test_a_service_that_fails_now_and_then_is_asked_again(cloud_storage: Any) -> None:
    bucket = Bucket("gs://ours/x")
    cloud_storage.failures += [503]
    bucket.write("a", b"1")
    cloud_storage.failures += [429]
    assert bucket.read("a") == b"1"


def test_a_folder_that_cannot_be_written_has_nothing_to_do_with_the_network(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="free some space or choose another directory"):
        Bucket(f"file://{tmp_path}/file").write("a", b"1")


def test_one_holder_a_lease(place: str) -> None:
    first, second = (Lease(Bucket(place), seconds_until_stale=1.0) for _ in range(2))
    first.acquire()
    with pytest.raises(UserError, match=f"process {os.getpid()} on"):
        second.acquire()
    first.check()
    first.release()
    second.acquire()
    with pytest.raises(LeaseLostError):
        first.check()
    second.release()
    assert Bucket(place).read("LEASE.json") is None


HOLD = """
import sys, time
from multiberts.runs.bucket.objects import Bucket
from multiberts.runs.bucket.lease import Lease
Lease(Bucket(sys.argv[1])).acquire()
print("held", flush=True)
time.sleep(10**6)
"""


def test_a_lease_of_a_killed_process_is_free_at_once(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, place], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and not reaped yet
    lease = Lease(Bucket(place))
    lease.acquire()
    assert "waiting" not in capsys.readouterr().err
    lease.release()
    process.wait()


ELSEWHERE = {"owner": "x", "host": "h", "machine": "m", "pid": 1, "created": 1.0, "started": 1.0}


# The last asks for more patience than anyone has.
@pytest.mark.parametrize(
    ("seconds_ahead", "asked"), [(-1e6, 0.6), (0.0, 0.6), (86400.0, 0.6), (0.0, 3.0)]
)
def test_a_silent_lease_of_another_machine_is_taken_over_whatever_its_clock(
    place: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    seconds_ahead: float,
    asked: float,
) -> None:
    monkeypatch.setattr("multiberts.runs.bucket.lease._LONGEST_PATIENCE", 0.6)
    bucket = Bucket(place)
    left = {**ELSEWHERE, "renewed": time.time() + seconds_ahead, "seconds_until_stale": asked}
    assert bucket.write_if("LEASE.json", json.dumps(left).encode(), None)
    lease = Lease(bucket, seconds_until_stale=0.6)
    before = time.monotonic()
    lease.acquire()
    assert time.monotonic() - before >= 0.6, "it was watched for as long as it asks"
    assert "waiting up to 1 s" in capsys.readouterr().err
    lease.check()
    lease.release()


def test_a_lease_that_is_renewed_elsewhere_is_not_taken_over_though_its_clock_is_behind(
    place: str,
) -> None:
    bucket = Bucket(place)
    times = iter(time.time() - 91 + number for number in range(10**6))

    def renew() -> None:
        fields = {**ELSEWHERE, "seconds_until_stale": 60.0, "renewed": next(times)}
        bucket.write("LEASE.json", json.dumps(fields).encode())

    renew()
    ended = threading.Event()

    def keep_renewing() -> None:
        while not ended.wait(0.2):
            renew()

    thread = threading.Thread(target=keep_renewing)
    thread.start()
    try:
        with pytest.raises(UserError, match="process 1 on h"):
            Lease(bucket, seconds_until_stale=6.0).acquire()
    finally:
        ended.set()
        thread.join()


def test_files_then_manifest_then_done(cloud_storage: Any) -> None:
    with Mirror("gs://ours/run") as mirror:
        run = RunDirectory(mirror.path, stage="work", parameters={"x": 1})
        with run:
            write_atomically(mirror.path / "state" / "step_1.npz", b"state")
            mirror.push()
            write_atomically(mirror.path / "state" / "step_2.npz", b"newer state")
            write_atomically(mirror.path / "out.txt", b"result")
            (mirror.path / "half.unfinished").write_bytes(b"half")
            run.finish(["out.txt"])
    names = [n.removeprefix("run/") for n in cloud_storage.written() if "LEASE" not in n]
    # In the end the manifest without states, which nobody needs any more; the last one is not pushed.
    assert set(names[:2]) == {"config.gin", "state/step_1.npz"}
    assert names[2:] == [MANIFEST, "out.txt", MANIFEST, "DONE", MANIFEST]
    left = set(names) - {"state/step_1.npz"}
    assert cloud_storage.names() == sorted(f"run/{name}" for name in left)
    manifest = json.loads(cloud_storage.objects["ours", f"run/{MANIFEST}"][0])
    assert manifest["files"]["out.txt"] == {
        "bytes": 6,
        "sha256": hashlib.sha256(b"result").hexdigest(),
        "object": "out.txt",
    }


def test_another_machine_goes_on_from_what_was_pushed(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Mirror(place) as mirror:
        write_atomically(mirror.path / "state" / "step_1.npz", b"one")
        (mirror.path / "metrics.jsonl").write_bytes(b"1\n")
        mirror.push()
        (mirror.path / "metrics.jsonl").write_bytes(b"1\n2\n")
        write_atomically(mirror.path / "state" / "step_2.npz", b"two")
        remove(mirror.path / "state" / "step_1.npz")
        mirror.push()
        write_atomically(mirror.path / "state" / "step_3.npz", b"not pushed: killed here")
        on_another_machine(tmp_path, monkeypatch, "the next")
        remove(mirror.path / "state" / "step_3.npz")
    assert Bucket(place).read("state/step_1.npz") is None
    with Mirror(place) as mirror:
        assert "mirror of the next" in str(mirror.path)
        files = {str(f.relative_to(mirror.path)): f.read_bytes() for f in mirror.path.rglob("*.*")}
        assert files == {"state/step_2.npz": b"two", "metrics.jsonl": b"1\n2\n"}


def test_stopped_between_files_and_manifest_restores_the_push_before(
    cloud_storage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that grows is never overwritten where the manifest still lists its old content."""
    mirror = Mirror("gs://ours/run")
    mirror.__enter__()
    log = mirror.path / "metrics.jsonl"
    for content in (b"a", b"bb", b"ccc", b"dddd"):
        log.write_bytes(content)
        mirror.push()
        before = dict(cloud_storage.objects)
        log.write_bytes(content * 2)
        (mirror.path / f"new {content.decode()}").write_bytes(content)
        real = Bucket.write_if
        with monkeypatch.context() as patch:
            patch.setattr(Bucket, "write_if", lambda *given: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                mirror.push()
        assert Bucket.write_if is real
        assert cloud_storage.objects.keys() > before.keys()
        entries = read_manifest(Bucket("gs://ours/run"))
        assert entries is not None
        entry = entries["metrics.jsonl"]
        assert Bucket("gs://ours/run").read(entry["object"]) == content
        log.write_bytes(content)
    write_atomically(mirror.path / "DONE", b'{"outputs": {}}')
    mirror.__exit__(None, None, None)
    names = [name for name in cloud_storage.names() if "metrics" in name]
    assert names == ["run/metrics.jsonl"]
    assert cloud_storage.objects["ours", "run/metrics.jsonl"][0] == b"dddd"


def test_who_lost_the_lease_pushes_nothing_more(
    cloud_storage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Mirror("gs://ours/run")
    slow.__enter__()
    slow.push()
    # As if this machine had been frozen for long and another had taken over.
    lease = json.loads(cloud_storage.objects["ours", "run/LEASE.json"][0])
    taken = json.dumps({**lease, "machine": "another", "seconds_until_stale": 0.6}).encode()
    Bucket("gs://ours/run").write("LEASE.json", taken)
    on_another_machine(tmp_path, monkeypatch, "another")
    with Mirror("gs://ours/run") as mirror:
        (mirror.path / "new").write_bytes(b"new")
        mirror.push()
        cloud_storage.log.clear()
        (slow.path / "old").write_bytes(b"old")
        with pytest.raises(LeaseLostError, match="taken over"):
            slow.push()
        with pytest.raises(LeaseLostError):
            slow.__exit__(None, None, None)
        assert [name for name in cloud_storage.written() if "LEASE" not in name] == []


def lose(place: str) -> None:
    """Holds a lease that another process takes."""

    os.environ["RUNS_PUSH_SECONDS"] = "0.1"

    def main(_arguments: Sequence[str]) -> None:
        with Mirror(place) as mirror:
            with preemption_notice() as should_stop:
                Bucket(place).write("LEASE.json", b"another's")
                for number in range(600):
                    (mirror.path / "log").write_text(str(number))
                    time.sleep(0.1)
                    if should_stop():
                        raise PreemptedError("asked to stop")

    run_main(main)


def test_a_stage_that_lost_the_lease_is_stopped(place: str) -> None:
    process = warm.Process("multiberts.tests.runs.bucket.test_objects:lose", [place])
    _, errors = process.communicate()
    assert process.returncode == 2
    assert "error: " in errors and "taken over" in errors


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("gs://theirs/run", r"gs://theirs: storage\.objects\.create, .*delete"),
        ("gs://nowhere/run", "gs://nowhere does not exist"),
    ],
)
def test_a_bucket_that_cannot_be_had_is_one_line(
    cloud_storage: Any, mirrors: Path, url: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        Mirror(url).__enter__()
    assert cloud_storage.log == []
    assert not mirrors.exists()


def test_commands_exit_with_two_and_write_nothing(cloud_storage: Any, tmp_path: Path) -> None:
    sources = tmp_path / "text.txt"
    sources.write_text("The cat sees the dog .\n")
    flags = ["--run_dir=gs://nowhere/x", f"--sources={sources}", "--source_format=sentences"]
    process = warm.run(["prepare", *flags])
    assert process.returncode == 2
    assert process.stderr.startswith("error: gs://nowhere does not exist")
    assert process.stderr.count("\n") == 1
    assert cloud_storage.log == []


def test_a_folder_of_other_things_is_no_run(place: str) -> None:
    Bucket(place).write("precious.txt", b"data")
    with pytest.raises(UserError, match=r"precious\.txt.*MANIFEST\.json"):
        Mirror(place).__enter__()
    assert Bucket(place).read("precious.txt") == b"data"
    assert Bucket(place).read("LEASE.json") is None


def test_a_damaged_object_is_refused(place: str, tmp_path: Path, monkeypatch: Any) -> None:
    with Mirror(place) as mirror:
        (mirror.path / "a").write_bytes(b"right")
    Bucket(place).write("a", b"wrong")
    on_another_machine(tmp_path, monkeypatch, "another")
    with pytest.raises(UserError, match=r"/a is not what .*MANIFEST\.json"):
        Mirror(place).__enter__()


def test_a_kind_of_bucket_without_conditions_holds_inputs_only() -> None:
    bucket = Bucket("local:///some/folder")
    with pytest.raises(UserError, match="file, gcs, gs, memory"):
        bucket.check_writable()
    with pytest.raises(UserError, match="nosuchthing://b/x"):
        Bucket("nosuchthing://b/x")


def stage(
    *, run_dir: str, text: str, more: tuple[str, ...] = (), factor: int = 2
) -> dict[str, Any]:
    """A stage as all are: plain paths in, a run directory out."""
    run = RunDirectory(run_dir, stage="stage", parameters={"factor": factor}, inputs={"text": text})
    if run.done:
        return {"done": True}
    with run:
        write_atomically(run.path / "out", Path(text).read_bytes() * factor)
        run.finish(["out"])
    return {"run_dir": run_dir, "text": text, "more": list(more)}


def test_stages_see_local_paths(
    place: str, tmp_path: Path, mirrors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = place.rsplit("/", 1)[0] + "/inputs"
    Bucket(inputs).write("a.txt", b"text")
    Bucket(inputs).write("folder/b.txt", b"more")
    arguments = {"run_dir": place, "text": f"{inputs}/a.txt", "more": [f"{inputs}/folder", "plain"]}
    with local_arguments(arguments) as local:
        seen = stage(**local)
        assert not any(is_url(value) for value in seen.values())
        assert (Path(seen["more"][0]) / "b.txt").read_bytes() == b"more"
        assert seen["more"][1] == "plain"
    assert Bucket(place).read("out") == b"texttext"
    # The frozen configuration names places that others see, too.
    config = (Bucket(place).read("config.gin") or b"").decode()
    assert f"stage.text = '{inputs}/a.txt'  # holds " in config
    assert str(mirrors) not in config
    on_another_machine(tmp_path, monkeypatch, "another")
    with local_arguments(arguments) as local:
        assert stage(**local) == {"done": True}
    Bucket(inputs).write("a.txt", b"changed")
    with pytest.raises(UserError, match=rf"{place} .*stage\.text \(there"):
        with local_arguments(arguments) as local:
            stage(**local)
    with pytest.raises(UserError, match=f"output_dir is '{place}'"):
        with local_arguments({"output_dir": place}):
            pass


def test_a_bucket_out_of_reach_is_no_fault_of_the_input(cloud_storage: Any) -> None:
    """Status 75: whoever looks after the command starts it again."""
    cloud_storage.failures += [505]
    with pytest.raises(PreemptedError, match="gs://ours/run"):
        with local_arguments({"run_dir": "gs://ours/run"}):
            pass
    with pytest.raises(PreemptedError, match="gs://ours/run"):
        with local_arguments({"run_dir": "gs://ours/run"}) as local:
            Path(local["run_dir"], "a").write_text("a")
            cloud_storage.failures += [505]
    with local_arguments({"run_dir": "gs://ours/run"}) as local:
        Path(local["run_dir"], "b").write_text("b")
    assert Bucket("gs://ours/run").read("b") == b"b"


def test_a_finished_run_is_an_input_and_an_unfinished_one_is_not(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source.txt"
    source.write_text("text")
    run = tmp_path / "finished"
    stage(run_dir=str(run), text=str(source))
    push_finished(run, place)
    push_finished(run, place)
    on_another_machine(tmp_path, monkeypatch, "another")
    copy = fetch(place)
    assert {file.name for file in copy.iterdir()} == {"config.gin", "out", "DONE"}
    assert (copy / "out").read_bytes() == b"texttext"
    other = tmp_path / "other"
    stage(run_dir=str(other), text=str(source), factor=3)
    with pytest.raises(UserError, match="another run"):
        push_finished(other, place)
    with pytest.raises(UserError, match="/nothing does not exist"):
        fetch(place + "/nothing")
    unfinished = place + "-unfinished"
    with Mirror(unfinished) as mirror:
        (mirror.path / "config.gin").write_text("")
    with pytest.raises(UserError, match="-unfinished .*not finished"):
        fetch(unfinished)


@pytest.mark.slow
def test_real_stages_from_bucket_to_bucket(
    cloud_storage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text becomes a corpus, and that a checkpoint, by the plain commands; training is taken away once."""
    sentences = "".join(f"The {a} sees the {b} .\n" for a in NOUNS for b in NOUNS)
    Bucket("gs://ours/text").write("a.txt", f"{sentences}\n{sentences}".encode())
    prepare = {
        "run_dir": "gs://ours/corpus", "sources": ["gs://ours/text/a.txt"],
        "source_format": "sentences", "vocabulary_size": 60, "sequence_length": 32,
    }  # fmt: skip
    assert run_stage("prepare", prepare).wait(PATIENCE) == 0
    assert {"corpus/DONE", "corpus/vocab.txt", f"corpus/{MANIFEST}"} <= set(cloud_storage.names())
    pretrain = {
        "run_dir": "gs://ours/run", "corpus": "gs://ours/corpus", "model": MODEL,
        "pretrain_seed": 1, "num_steps": 1000, "batch_size": 8, "sequence_length": 32,
        "max_predictions_per_sequence": 5, "gradient_shards": 2, "warmup_steps": 0,
        "log_every_steps": 1, "save_state_every_steps": 50, "compile_step": False,
    }  # fmt: skip
    on_another_machine(tmp_path, monkeypatch, "the first")
    monkeypatch.setenv("RUNS_PUSH_SECONDS", "0.2")
    first = run_stage("pretrain", pretrain)
    until_pushed(cloud_storage, "run/state/")
    first.terminate()
    assert first.wait(PATIENCE) == 75
    assert "run/DONE" not in cloud_storage.names() and "run/LEASE.json" not in cloud_storage.names()
    on_another_machine(tmp_path, monkeypatch, "the second")
    assert run_stage("pretrain", pretrain).wait(PATIENCE) == 0
    copy = fetch("gs://ours/run")
    steps = [json.loads(line)["step"] for line in (copy / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, 1001))
    outputs = json.loads((copy / "DONE").read_text())["outputs"]
    assert len(outputs) == 5
    for name, entry in outputs.items():
        content = cloud_storage.objects["ours", f"run/{name}"][0]
        assert hashlib.sha256(content).hexdigest() == entry["sha256"]


NOUNS = ["cat", "dog", "house", "tree", "river", "king"]


def run_stage(stage: str, given: dict[str, Any]) -> warm.Process:
    flags = [f"--gin_param={stage}.{name} = {value!r}" for name, value in given.items()]
    return warm.Process(warm.COMMAND, [[stage, *flags]], kind=warm.TENSORFLOW)


def until_pushed(storage: Any, prefix: str) -> None:
    end = time.monotonic() + PATIENCE
    while not storage.names(prefix):
        assert time.monotonic() < end
        time.sleep(0.02)
