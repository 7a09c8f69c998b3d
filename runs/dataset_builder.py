"""Opens what TensorFlow Datasets knows by name, the same way for every stage.

TensorFlow is imported when a dataset is opened, and not before.
"""

from __future__ import annotations

from typing import Any

from multiberts.runs.errors import UserError


def open_builder(dataset: str, datasets_dir: str | None, *, parameter: str) -> Any:
    """Returns the builder of a dataset, which is prepared first where it is not on this machine.

    Args:
      dataset: a name as `tensorflow_datasets.builder` takes it, such as `glue/rte`.
      datasets_dir: where prepared datasets lie; None: where TensorFlow Datasets keeps them.
      parameter: the user's name of `datasets_dir`, for errors.

    Raises:
      UserError: there is no such dataset, or it cannot be prepared here.
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise UserError(
            f"dataset {dataset} needs the package tensorflow-datasets ({error}); install "
            "requirements.txt"
        ) from error
    try:
        # Without this the library looks for prepared data on the network first.
        builder = tfds.builder(dataset, data_dir=datasets_dir, try_gcs=False)
        if not builder.is_prepared():
            builder.download_and_prepare()
    except Exception as error:
        # The library raises many kinds of errors; its text is shown to the user.
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        where = datasets_dir or "the default directory"
        raise UserError(
            f"TensorFlow Datasets cannot give {dataset} from {where}: {reason}; check the name and "
            f"{parameter}, or prepare the dataset where there is a network"
        ) from error
    return builder
