"""Checkpoints by name: `hub:google/multiberts-seed_0`, or with a revision, `hub:<repository>@<revision>`.

The Hub resolves the revision (by default `main`) to its current commit. Files are downloaded once, to the
cache that transformers uses, too (`HF_HOME`). Without a network the cached commit is used. `HF_ENDPOINT`
names another server.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
from pathlib import Path
from typing import Any

from multiberts.bert.checkpoint import hugging_face, tensorflow_format
from multiberts.bert.vocabulary import TOKENS_FILES
from multiberts.runs import console
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike

# The Hub's library uses httpx2, earlier versions httpx; both log every request.
for _library in ("httpx", "httpx2"):
    logging.getLogger(_library).setLevel(logging.WARNING)

HUB = "hub:"
# Names that the Hub's client accepts: `huggingface_hub.utils.validate_repo_id`.
_NAME = re.compile(
    r"(?![^@]*(?:--|\.\.|\.git(?:@|$)))(?P<repository>\b[\w.-]{1,96}\b(/\b[\w.-]{1,96}\b)?)"
    r"(@(?P<revision>[\w./-]+))?",
    re.ASCII,
)
# The first available group of files is downloaded; pickled files are the last resort.
_WEIGHTS = (
    {tensorflow_format.INDEX, tensorflow_format.DATA},
    {hugging_face.WEIGHTS},
    {hugging_face.OLD_WEIGHTS},
)
_DESCRIBING = {
    *hugging_face.FILES, *tensorflow_format.FILES, *TOKENS_FILES, "checkpoint.json"
}.difference(*_WEIGHTS)  # fmt: skip


def checkpoint_directory(checkpoint: PathLike) -> Path:
    """Returns the directory of a checkpoint, after a download if it is given by name.

    Args:
      checkpoint: a directory, or `hub:<repository>[@<revision>]`.

    Examples:
      >>> checkpoint_directory("results/seed_0").name
      'seed_0'
    """
    name = str(checkpoint)
    return _fetched(name) if name.startswith(HUB) else Path(checkpoint)


def is_name(checkpoint: object) -> bool:
    """Returns whether a checkpoint is given by name, not as a directory.

    Examples:
      >>> is_name("hub:google/multiberts-seed_0"), is_name("results/seed_0")
      (True, False)
    """
    return isinstance(checkpoint, str) and checkpoint.startswith(HUB)


def origin_of(directory: Path) -> str:
    """Returns a checkpoint's name in records: the directory's name, or `<repository>@<commit>`.

    Examples:
      >>> origin_of(Path("hub/models--google--multiberts-seed_0/snapshots/5f0a"))
      'google/multiberts-seed_0@5f0a'
    """
    folder = directory.parent.parent.name
    if directory.parent.name != "snapshots" or not folder.startswith("models--"):
        return directory.name
    return f"{folder.removeprefix('models--').replace('--', '/')}@{directory.name}"


def check_name(checkpoint: PathLike) -> None:
    """Refuses a malformed name, without any download.

    Examples:
      >>> check_name("hub:google/multiberts-seed_0")
    """
    name = str(checkpoint)
    if name.startswith(HUB):
        _repository_named(name)


def _repository_named(name: str) -> re.Match[str]:
    match = _NAME.fullmatch(name.removeprefix(HUB))
    if match is None:
        raise UserError(
            f"{name!r} names no repository, expected hub:<owner>/<name> or hub:<owner>/<name>@<revision>; "
            "correct it"
        )
    return match


# Once per process, so that all runs of a sweep start from the same commit.
@functools.cache
def _fetched(name: str) -> Path:
    match = _repository_named(name)
    huggingface_hub = _client(name)
    repository, revision = match["repository"], match["revision"]
    api = huggingface_hub.HfApi()
    try:
        info = api.model_info(repository, revision=revision)
        files = {file.rfilename for file in info.siblings or []}
        weights = next((weights for weights in _WEIGHTS if weights <= files), None)
        if weights is None:
            raise UserError(
                f"{name} holds neither {hugging_face.WEIGHTS} nor {hugging_face.OLD_WEIGHTS} nor "
                f"{tensorflow_format.INDEX} with its parts; give a repository with a BERT"
            )
        wanted = sorted((weights | _DESCRIBING) & files)
        # Pass the symbolic revision, so that the cache can resolve it offline.
        directory = Path(
            huggingface_hub.snapshot_download(
                repository, revision=revision, allow_patterns=wanted, etag_timeout=60
            )
        )
    except _failures(huggingface_hub) as error:
        errors = huggingface_hub.errors
        if isinstance(error, (errors.RepositoryNotFoundError, errors.RevisionNotFoundError)):
            is_revision = isinstance(error, errors.RevisionNotFoundError)
            raise UserError(
                f"{name}: the Hub has no such {'revision' if is_revision else 'repository'}, or it is "
                "private; correct the name, or log in with `hf auth login`"
            ) from error
        cached = _cached(name, huggingface_hub, repository, revision)
        if cached is None:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(
                f"{name} cannot be fetched from {huggingface_hub.constants.ENDPOINT} ({reason}), and is "
                "not cached; fetch it where there is a network, and give its directory"
            ) from error
        directory = cached
    console.progress(f"{name} is {origin_of(directory)}")
    return directory


def _failures(huggingface_hub: Any) -> Any:
    """Returns the base of all errors of the library's HTTP client, and OSError."""
    return huggingface_hub.errors.HfHubHTTPError.__bases__


def _client(name: str) -> Any:
    try:
        import huggingface_hub.constants
        import huggingface_hub.errors
    except ImportError as error:
        raise UserError(
            f"{name} needs huggingface_hub ({error}); pip install huggingface-hub, or give "
            "a directory"
        ) from error
    return huggingface_hub


def _cached(name: str, huggingface_hub: Any, repository: str, revision: str | None) -> Path | None:
    not_found = huggingface_hub.errors.LocalEntryNotFoundError
    for weights in _WEIGHTS:
        # A snapshot lacks files that were not requested, so the library needs the list of those that were.
        with contextlib.suppress(not_found, *_failures(huggingface_hub)):
            snapshot = Path(
                huggingface_hub.snapshot_download(
                    repository,
                    revision=revision,
                    allow_patterns=sorted(weights | _DESCRIBING),
                    local_files_only=True,
                )
            )
            if all((snapshot / file).is_file() for file in weights):
                server = huggingface_hub.constants.ENDPOINT
                console.progress(
                    f"note: {server} cannot be reached; {name} is taken from the cache"
                )
                return snapshot
    return None
