"""Checkpoints by name: `hub:google/multiberts-seed_0`, or with a revision, `hub:<repository>@<revision>`.

The Hub resolves the revision (by default `main`) to its current commit. Files are downloaded once, to the
cache that transformers uses, too (`HF_HOME`). Without a network the cached commit is used. `HF_ENDPOINT`
names another server.
"""

from __future__ import annotations

import contextlib
import functools
import http
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from multiberts.bert.checkpoint import hugging_face, tensorflow_format
from multiberts.bert.checkpoint.sampling import Source
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
# A step in the name of a branch, a repository or a folder: step1000, global_step20, checkpoint-300, step_20k.
STEP = re.compile(
    r"[-_/.@]?(?:global_?)?(?:step|checkpoint|ckpt)[-_]?(\d+)(k?)(?![a-z0-9])", re.IGNORECASE
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
    with _said(name, huggingface_hub, ", and is not cached"):
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
            is_missing = isinstance(error, _missing(huggingface_hub))
            if is_missing or not (cached := _cached(name, huggingface_hub, repository, revision)):
                raise
            directory = cached
    console.progress(f"{name} is {origin_of(directory)}")
    return directory


def revisions_of(name: str) -> list[tuple[str, Source]]:
    """Returns the branches of a repository that have a step in their name, or `main`, to be read in ranges.

    Args:
      name: `hub:<repository>` for all revisions, or `hub:<repository>@<revision>` for one.

    Examples:
      `revisions_of("hub:EleutherAI/pythia-14m-seed1")` has an entry for each step of that seed.
    """
    match = _repository_named(name)
    repository, revision = match["repository"], match["revision"]
    huggingface_hub = _client(name)
    api = huggingface_hub.HfApi()
    with _said(name, huggingface_hub):
        branches = [] if revision else api.list_repo_refs(repository).branches
        steps = sorted(branch.name for branch in branches if STEP.search(branch.name))
        return [
            (each, _repository_source(huggingface_hub, name, repository, each))
            for each in [revision] * bool(revision) or steps or ["main"]
        ]


def _repository_source(huggingface_hub: Any, name: str, repository: str, revision: str) -> Source:
    listed = huggingface_hub.HfApi().list_repo_tree(repository, revision=revision)
    files = [file for file in listed if hasattr(file, "size")]

    def read(file: str, offset: int, size: int) -> bytes:
        url = huggingface_hub.hf_hub_url(repository, file, revision=revision)
        headers = huggingface_hub.utils.build_hf_headers()
        headers["Range"] = f"bytes={offset}-{offset + size - 1}"
        with _said(name, huggingface_hub):
            answer = huggingface_hub.get_session().get(url, headers=headers, timeout=60)
            huggingface_hub.utils.hf_raise_for_status(answer)
        # Small files that are read whole are downloaded.
        if answer.status_code != http.HTTPStatus.PARTIAL_CONTENT and len(answer.content) != size:
            raise UserError(
                f"{name}: {huggingface_hub.constants.ENDPOINT} sends whole files only; fetch the "
                "repository, and give its directory"
            )
        return bytes(answer.content)

    return Source(
        f"{HUB}{repository}@{revision}",
        {file.path: file.size for file in files},
        {file.path: file.lfs.sha256 if file.lfs else file.blob_id for file in files},
        read,
    )


@contextlib.contextmanager
def _said(name: str, huggingface_hub: Any, further: str = "") -> Iterator[None]:
    """Turns errors of the Hub's client into one-line messages."""
    try:
        yield
    except _failures(huggingface_hub) as error:
        if isinstance(error, _missing(huggingface_hub)):
            is_revision = isinstance(error, huggingface_hub.errors.RevisionNotFoundError)
            raise UserError(
                f"{name}: the Hub has no such {'revision' if is_revision else 'repository'}, or it is "
                "private; correct the name, or log in with `hf auth login`"
            ) from error
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{name} cannot be fetched from {huggingface_hub.constants.ENDPOINT} ({reason})"
            f"{further}; fetch it where there is a network, and give its directory"
        ) from error


def _failures(huggingface_hub: Any) -> Any:
    """Returns the base of all errors of the library's HTTP client, and OSError."""
    return huggingface_hub.errors.HfHubHTTPError.__bases__


def _missing(huggingface_hub: Any) -> Any:
    errors = huggingface_hub.errors
    return errors.RepositoryNotFoundError, errors.RevisionNotFoundError


def _client(name: str) -> Any:
    try:
        import huggingface_hub.constants
        import huggingface_hub.errors
        import huggingface_hub.utils
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
