"""Opens what TensorFlow Datasets knows by name, the same way for every stage.

TensorFlow is imported when a dataset is opened, and not before.
"""

from __future__ import annotations

import functools
import logging
import socket
import sys
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from multiberts.runs.errors import UserError

_SECONDS_TO_CONNECT = 5


def open_builder(dataset: str, datasets_dir: str | None, *, parameter: str) -> Any:
    """Returns the builder of a dataset, which is prepared first where it is not on this machine.

    Args:
      dataset: a name as `tensorflow_datasets.builder` takes it, such as `glue/rte`.
      datasets_dir: folder of prepared datasets; None: the default of TensorFlow Datasets.
      parameter: the user's name of `datasets_dir`, for errors.
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise UserError(
            f"dataset {dataset} needs the package tensorflow-datasets ({error}); install "
            "multiberts[tensorflow]"
        ) from error
    log = logging.getLogger("absl")
    level = log.level
    try:
        log.setLevel(logging.ERROR)  # it warns of folders that it is about to make
        _refuse_imports(tfds.features.FeatureConnector)
        # Without this the library looks for prepared data on the network first.
        builder = tfds.builder(dataset, data_dir=datasets_dir, try_gcs=False)
        files = [file for split in builder.info.splits.values() for file in split.filepaths]
        if other := next((f for f in files if Path(f).parent != Path(builder.data_path)), None):
            raise ValueError(f"its files name another file, {other}, which is outside of it")
        if not builder.is_prepared():
            _require_network(builder)
            builder.download_and_prepare()
    except Exception as error:
        # The library raises many kinds of errors; its text is shown to the user.
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise UserError(
            f"TensorFlow Datasets cannot give {dataset} from {datasets_dir or 'the default directory'}: "
            f"{reason}; check the name and {parameter}, or prepare the dataset where there is a network"
        ) from error
    finally:
        log.setLevel(level)
    return builder


@functools.cache
def _refuse_imports(features: Any) -> None:
    """Prevents the library, in this process, from importing modules named in a dataset's files."""
    find = features.cls_from_name

    def find_loaded(name: str) -> Any:
        # The library has loaded all its types. Importing its tests may put `.` on the path.
        is_ours = name.startswith("tensorflow_datasets.")
        if not is_ours or name.rpartition(".")[0] not in sys.modules:
            raise ValueError(f"its files name the type {name!r}, which would import a module")
        return find(name)

    features.cls_from_name = find_loaded


def _require_network(builder: Any) -> None:
    """Fails where no host of the dataset answers; the library tries each file ten times, for minutes."""
    root = Path(builder.data_path).parents[builder.info.full_name.count("/")]
    if any(path.is_file() for path in root.glob("downloads/**/*")):
        return  # what was fetched before may be enough
    problem: OSError | None = None
    proxies = urllib.request.getproxies()
    addresses = set()
    for url in builder.url_infos or ():
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme in proxies and not urllib.request.proxy_bypass(host):
            proxy = proxies[parts.scheme]
            parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        ports = {"http": 80, "ftp": 21}
        addresses.add((parts.hostname or "", parts.port or ports.get(parts.scheme, 443)))
    for address in sorted(addresses):
        try:
            socket.create_connection(address, timeout=_SECONDS_TO_CONNECT).close()
            return
        except OSError as error:
            problem = OSError(f"{address[0]} cannot be reached ({error.strerror or error})")
    if problem is not None:
        raise problem
