"""Parameters of a command as flags: texts of the command line become values of the annotated types."""

from __future__ import annotations

import ast
import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_WORDS = {"true": True, "false": False, "none": None}


def annotations_of(function: Callable[..., object]) -> dict[str, Any]:
    """Returns the annotation of every parameter of `function`, resolved where it is a text."""
    # Of the undecorated function: what wraps it may live in another module.
    hints = typing.get_type_hints(inspect.unwrap(function))
    return {name: hints.get(name, Any) for name in inspect.signature(function).parameters}


def value_of_flag(texts: Sequence[str], annotation: Any) -> Any:
    """Returns the value that a flag's texts stand for; a bare word is a string.

    Args:
      texts: one for each time the flag was given.
      annotation: of the parameter.

    Example:
      >>> value_of_flag(["1e-4"], float), value_of_flag(["1e-4"], str)
      (0.0001, '1e-4')
      >>> value_of_flag(["a,b"], Sequence[str]), value_of_flag(["a", "b"], str | Sequence[str])
      (['a', 'b'], ['a', 'b'])
    """
    kinds = _kinds(annotation)
    if str not in kinds and _is_sequence(kinds):
        texts = _split(texts[0]) if len(texts) == 1 else texts
        return [_literal(text, {str} | kinds) for text in texts]
    if len(texts) > 1:
        return [_literal(text, kinds) for text in texts]
    return _literal(texts[0], kinds)


def described(annotation: Any) -> str:
    """Returns an annotation as users read it, such as `int or None`."""
    if annotation is Any:
        return "any"
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return " or ".join(described(part) for part in typing.get_args(annotation))
    if typing.get_origin(annotation) is typing.Literal:
        return " or ".join(repr(choice) for choice in typing.get_args(annotation))
    origin = typing.get_origin(annotation)
    parts = ", ".join(described(part) for part in typing.get_args(annotation) if part is not ...)
    if origin in (collections.abc.Sequence, list, tuple):
        return f"list of {parts}"
    if origin in (collections.abc.Mapping, dict):
        return f"mapping of {parts.replace(', ', ' to ', 1)}"
    if annotation is type(None):
        return "None"
    return getattr(annotation, "__name__", str(annotation))


def _kinds(annotation: Any) -> set[Any]:
    """Returns the alternatives of an annotation, without their parameters."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return set().union(*map(_kinds, typing.get_args(annotation)))
    if typing.get_origin(annotation) is typing.Literal:
        return {type(choice) for choice in typing.get_args(annotation)}
    return {typing.get_origin(annotation) or annotation}


def _is_sequence(kinds: set[Any]) -> bool:
    return bool(kinds & {collections.abc.Sequence, list, tuple})


def _split(text: str) -> list[str]:
    if text.startswith(("[", "(")):
        try:
            return [str(item) for item in ast.literal_eval(text)]
        except (ValueError, SyntaxError):
            return [text]
    return text.split(",")


def _literal(text: str, kinds: set[Any]) -> Any:
    """Returns what a text spells where its type is among `kinds`, else the text itself."""
    if kinds == {str}:
        return text
    try:
        value = _WORDS[text.lower()] if text.lower() in _WORDS else ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    fits = {type(value)} | {kind for kind in kinds if kind is Any}
    if isinstance(value, int) and not isinstance(value, bool):
        fits.add(float)
    if isinstance(value, (list, tuple)):
        fits |= {collections.abc.Sequence, list, tuple}
    if isinstance(value, dict):
        fits.add(Mapping)
        fits.add(collections.abc.Mapping)
    return value if fits & kinds or str not in kinds else text
