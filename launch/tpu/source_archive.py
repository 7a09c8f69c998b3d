"""The program as one archive, which nodes fetch from the bucket: the same files give the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

# What pre-training imports, and the launcher's part on the node.
PACKAGES = ("runs", "bert", "pretrain", "launch")
_SUFFIXES = {".py", ".j2", ".toml"}


def pack(project: Path) -> tuple[bytes, str]:
    """Packs the program.

    Args:
      project: its folder.

    Returns:
      A gzipped tar file, and its SHA-256 in hexadecimal.
    """
    files = [
        project / "__init__.py",
        *sorted(project.glob("requirements*.txt")),
        *(
            file
            for package in PACKAGES
            for file in sorted((project / package).rglob("*"))
            if file.suffix in _SUFFIXES and "__pycache__" not in file.parts
        ),
    ]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for file in files:
            data = file.read_bytes()
            # Neither times nor owners: they change no program.
            entry = tarfile.TarInfo(str("multiberts" / file.relative_to(project)))
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    packed = gzip.compress(buffer.getvalue(), mtime=0)
    return packed, hashlib.sha256(packed).hexdigest()
