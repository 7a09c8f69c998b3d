"""A full disk is told from other errors, whichever library reports it."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from multiberts.runs.errors import UserError, disk_full_line

PROGRAM = """
import resource, signal, sys
import numpy as np
import tensorflow as tf
from multiberts.runs.errors import disk_full_line

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    tf.raw_ops.SaveV2(
        prefix="weights", tensor_names=["w"], shape_and_slices=[""],
        tensors=[tf.constant(np.zeros(100_000))],
    )
except Exception as error:
    print(disk_full_line(error))
"""


@pytest.mark.slow
def test_tensorflows_own_writer(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    (line,) = done.stdout.splitlines()
    assert "weights" in line and "File too large" in line


def test_a_full_disk_is_told_once_and_a_full_quota_or_a_file_that_is_too_large_is_one() -> None:
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        line = disk_full_line(OSError(number, os.strerror(number), "state.npz"))
        assert line is not None and f"state.npz: {os.strerror(number)}" in line
    with pytest.raises(UserError) as caught:
        raise UserError("cannot write a; free some space") from OSError(28, "No space left", "a")
    assert disk_full_line(caught.value) == "cannot write a; free some space"
    assert disk_full_line(ValueError("a damaged file")) is None
