"""Keys of a launch count whatever a machine's clock says."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from multiberts.launch.workers.pool import make_keys


@pytest.mark.parametrize("days", [-400, -1, 0, 400])
def test_certificates_are_valid_at_any_time_that_a_clock_may_show(
    tmp_path: Path, days: float
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    certificate = tmp_path / "cert"
    certificate.write_text(make_keys()["tls_worker_cert"])
    moment = str(int(time.time() + days * 86400))
    command = ["openssl", "verify", "-attime", moment, "-CAfile", str(certificate)]
    said = subprocess.run([*command, str(certificate)], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
