"""Operations in NumPy, against Keras's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

# Not `ops` by name: where pytest looks whether it is a test, it would import Keras.
from multiberts.bert.model import array_ops, numpy_ops
from multiberts.bert.model.array_ops import numpy_arrays

_RANDOM = np.random.default_rng(0)
_VALUES = _RANDOM.normal(size=(3, 4, 5)).astype(np.float32)
_POSITIVE = np.abs(_VALUES) + np.float32(0.1)
_NUMBERS = _RANDOM.integers(0, 4, (2, 3)).astype(np.int32)

# Name, arguments, keyword arguments.
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("arange", (5,), {"dtype": "int32"}),
    ("argmax", (_VALUES,), {"axis": -1}),
    ("cast", (_NUMBERS, "float32"), {}),
    ("concatenate", ([_VALUES, _POSITIVE],), {"axis": -1}),
    ("equal", (_NUMBERS, 1), {}),
    ("gelu", (4 * _VALUES,), {"approximate": True}),
    ("gelu", (4 * _VALUES,), {"approximate": False}),
    ("matmul", (_VALUES, _VALUES.transpose(0, 2, 1)), {}),
    ("mean", (_VALUES,), {"axis": -1, "keepdims": True}),
    ("one_hot", (_NUMBERS, 4), {"dtype": "float32"}),
    ("relu", (_VALUES,), {}),
    ("reshape", (_VALUES, (-1, 5)), {}),
    ("rsqrt", (_POSITIVE,), {}),
    ("shape", (_VALUES,), {}),
    ("softmax", (_VALUES - 1e4,), {"axis": -1}),
    ("square", (_VALUES,), {}),
    ("sum", (_VALUES,), {"axis": 1}),
    ("take", (_VALUES[:, :, 0], _NUMBERS % 3), {"axis": 0}),
    ("tanh", (_VALUES,), {}),
    ("transpose", (_VALUES, (2, 0, 1)), {}),
    ("where", (_VALUES > 0, _VALUES, -1e9), {}),
]


@pytest.mark.parametrize(("name", "arguments", "named"), CASES, ids=[case[0] for case in CASES])
def test_an_operation_is_that_of_keras(
    name: str, arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    import keras

    with numpy_arrays():
        found = getattr(array_ops.ops, name)(*arguments, **named)
    expected = getattr(array_ops.ops, name)(*arguments, **named)
    if name == "shape":
        assert found == tuple(expected)
        return
    expected = keras.ops.convert_to_numpy(expected)
    assert isinstance(found, np.ndarray) and found.shape == expected.shape
    if name != "argmax":  # int64 in NumPy; it numbers classes
        assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


def test_all_operations_are_compared() -> None:
    assert sorted({name for name, _, _ in CASES}) == sorted(
        name for name, value in vars(numpy_ops).items() if callable(value) and name[0] != "_"
    )


def test_an_operation_that_is_not_there_is_no_other_library_s() -> None:
    with numpy_arrays(), pytest.raises(AttributeError, match="conv"):
        array_ops.ops.conv(_VALUES, _VALUES)
