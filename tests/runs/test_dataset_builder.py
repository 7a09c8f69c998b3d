from __future__ import annotations

import socket
from pathlib import Path

import pytest

from multiberts.runs.dataset_builder import open_builder
from multiberts.runs.errors import UserError


@pytest.mark.parametrize("dataset", ["glue/rte", "squad/v1.1"])
def test_without_a_network_a_dataset_is_refused_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset: str
) -> None:
    """All ways lead through a port at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        for name in ("http_proxy", "https_proxy", "ftp_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{taken.getsockname()[1]}")
        monkeypatch.setenv("no_proxy", "")
        with pytest.raises(UserError) as refused:
            open_builder(dataset, str(tmp_path), parameter="finetune.data_dir")
    message = str(refused.value)
    assert f"{dataset} from {tmp_path}: " in message
    assert "127.0.0.1" in message
    assert list(tmp_path.iterdir()) == []
