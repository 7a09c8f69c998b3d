"""The published MultiBERTs as their authors stored them: `tf-release:seed_0` to `tf-release:seed_24`.

An archive per seed with the last checkpoint in the TF1 layout; vocabulary and configuration lie next to
the archives. They are fetched once, into `$XDG_CACHE_HOME/multiberts/release` (`~/.cache` unless set).
`MULTIBERTS_RELEASE` names a copy elsewhere.

Reference: google-research/language, language/multiberts, "Checkpoints".
"""

from __future__ import annotations

import functools
import http.client
import os
import re
import time
import urllib.error
import urllib.request
from pathlib import Path

from multiberts.bert.checkpoint import tensorflow_format
from multiberts.bert.checkpoint.release_names import release_name
from multiberts.runs import console
from multiberts.runs.archives import open_archive
from multiberts.runs.errors import UserError
from multiberts.runs.files import replaced

RELEASE = "tf-release:"
_ADDRESS = "https://storage.googleapis.com/multiberts/public"
_NUM_SEEDS = 25
_SECONDS_WITHOUT_AN_ANSWER = 60
# Bytes per second; a checkpoint would take five days.
_SLOWEST = 1000
_BYTES_AT_ONCE = 1 << 20


# Once per process.
@functools.cache
def release_directory(name: str) -> Path:
    """Returns the directory of a published checkpoint, fetched unless it is there.

    Args:
      name: `tf-release:seed_<n>`.

    Raises:
      UserError: another name, the archive cannot be fetched or is not whole, or the disk is full; nothing
        is left behind.
    """
    seed = seed_named(name)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    # The name says of which procedure, seed and step the weights are.
    directory = Path(cache, "multiberts", "release", release_name(seed))
    if directory.is_dir():
        return directory
    address = os.environ.get("MULTIBERTS_RELEASE", _ADDRESS).rstrip("/")
    with replaced(directory) as folder:
        folder.mkdir()
        archive = folder / "archive.zip"
        _fetch(f"{address}/models/seed_{seed}.zip", archive)
        _unpack(name, archive, folder)
        archive.unlink()
        for file in (tensorflow_format.CONFIG, tensorflow_format.VOCABULARY):
            _fetch(f"{address}/{file}", folder / file)
    console.progress(f"{name} was fetched to {directory}")
    return directory


def seed_named(name: str) -> int:
    """Returns the seed of a published checkpoint.

    Raises:
      UserError: there is none of that name.

    Example:
      >>> seed_named("tf-release:seed_3")
      3
    """
    match = re.fullmatch(r"seed_(\d+)", name.removeprefix(RELEASE))
    if match is None or int(match[1]) >= _NUM_SEEDS:
        raise UserError(
            f"{name!r} is not in the release, expected {RELEASE}seed_0 to {RELEASE}seed_{_NUM_SEEDS - 1}; "
            "correct it (hub:google/multiberts-seed_0-step_20k is an intermediate checkpoint)"
        )
    return int(match[1])


def _fetch(address: str, path: Path) -> None:
    console.progress(f"fetching {address}")
    try:
        with (
            urllib.request.urlopen(address, timeout=_SECONDS_WITHOUT_AN_ANSWER) as answer,
            path.open("wb") as file,
        ):
            started = time.monotonic()
            # Reads what has arrived: a server that sends a byte now and then would fill a block in hours.
            while block := answer.read1(_BYTES_AT_ONCE):
                file.write(block)
                refuse_crawl(file.tell(), time.monotonic() - started)
            wanted = answer.headers.get("Content-Length")
    except (
        urllib.error.URLError,
        http.client.HTTPException,
        TimeoutError,
        ConnectionError,
    ) as error:
        reason = getattr(error, "reason", None) or error
        raise UserError(
            f"{address} cannot be fetched ({reason}); try again where there is a network, or give the "
            "directory of a checkpoint"
        ) from error
    if wanted is not None and path.stat().st_size != int(wanted):
        raise UserError(
            f"{address} ended after {path.stat().st_size:,} of {int(wanted):,} bytes; try again"
        )


def refuse_crawl(num_bytes: int, seconds: float) -> None:
    """Ends a download that would take days, though bytes keep coming.

    Raises:
      TimeoutError: fewer than 1,000 bytes per second have come, after a minute.
    """
    if seconds > _SECONDS_WITHOUT_AN_ANSWER and num_bytes < _SLOWEST * seconds:
        raise TimeoutError(f"{num_bytes:,} bytes in {seconds:.0f} s")


def _unpack(name: str, archive: Path, folder: Path) -> None:
    """Writes the weights of an archive, from any folder inside it, and checks their checksums."""
    with open_archive(archive) as members:
        for member in members.names:
            file = Path(member).name
            if file in (tensorflow_format.INDEX, tensorflow_format.DATA):
                members.write(member, folder / file)
    lacking = [
        file
        for file in (tensorflow_format.INDEX, tensorflow_format.DATA)
        if not (folder / file).is_file()
    ]
    if lacking:
        raise UserError(
            f"{name}: the archive has no {lacking[0]}; take the checkpoint from the Hub"
        )
