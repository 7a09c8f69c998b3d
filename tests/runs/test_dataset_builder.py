from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

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
    assert "127.0.0.1 cannot be reached" in message  # at once: the library tries for ten minutes
    assert list(tmp_path.iterdir()) == []


_EVIL = {"pythonClassName": "evil_features.Evil", "text": {}}
_OLD_EVIL = {"type": "evil_features.Evil", "content": {}}
_INFO = {"name": "stranger", "version": "1.0.0", "fileFormat": "tfrecord"}
_EVIL_IN_DICT = json.dumps({"features": {"a": _EVIL}})
_DICT = "tensorflow_datasets.core.features.features_dict.FeaturesDict"
_PROTO = "tensorflow_datasets.FeaturesDict"
# Puts the current folder first on the path of modules.
_PATH_CHANGER = "tensorflow_datasets.datasets.asset.asset_dataset_builder_test"


def _folder(root: Path) -> Path:
    folder = root / "stranger" / "1.0.0"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("template", ["/etc/{SPLIT}", "../other-{SHARD_X_OF_Y}"])
def test_a_prepared_dataset_is_read_within_its_folder(tmp_path: Path, template: str) -> None:
    split = {"name": "train", "filepathTemplate": template, "shardLengths": ["5"]}
    info = {**_INFO, "splits": [split]}
    features = {"pythonClassName": _DICT, "featuresDict": {"features": {}}}
    dataset = _folder(tmp_path)
    (dataset / "dataset_info.json").write_text(json.dumps(info))
    (dataset / "features.json").write_text(json.dumps(features))
    with pytest.raises(UserError, match=r"its files name another file, .*(train|other-)"):
        open_builder("stranger", str(tmp_path), parameter="finetune.data_dir")


@pytest.mark.parametrize(
    "features",
    [
        {"python_class_name": "evil_features.Evil", "text": {}},
        {"pythonClassName": _DICT, "featuresDict": {"features": {"a": _EVIL}}},
        _OLD_EVIL,
        {"type": _DICT, "content": {"a": _OLD_EVIL}},
        {"pythonClassName": _DICT, "jsonFeature": {"json": json.dumps({"a": _OLD_EVIL})}},
        {"type": _DICT, "proto_cls": _PROTO, "content": _EVIL_IN_DICT},
        {"pythonClassName": f"{_PATH_CHANGER}.Any", "text": {}},
        _EVIL,
        {**_INFO, "features": _EVIL},
    ],
)
def test_a_prepared_dataset_imports_no_module_that_its_files_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, features: dict[str, Any]
) -> None:
    for module in (evil := "evil_features"), _PATH_CHANGER:
        monkeypatch.delitem(sys.modules, module, raising=False)
    (tmp_path / f"{evil}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.syspath_prepend(tmp_path)
    dataset = _folder(tmp_path)
    is_info = "name" in features
    contents = ({}, features) if is_info else (features, _INFO)
    for name, content in zip(("features.json", "dataset_info.json"), contents, strict=True):
        (dataset / name).write_text(json.dumps(content))
    with pytest.raises(UserError) as refused:
        open_builder("stranger", str(tmp_path), parameter="finetune.data_dir")
    assert not (tmp_path / "ran").exists()
    assert _PATH_CHANGER not in sys.modules
    assert f"stranger from {tmp_path}: its files name the type '" in str(refused.value)
