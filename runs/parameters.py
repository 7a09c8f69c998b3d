"""Parameters of a command: values from the command line and Gin, checked against annotations with ranges."""

from __future__ import annotations

import ast
import collections.abc
import contextlib
import functools
import inspect
import math
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ParamSpec, TypeVar

from multiberts.runs.errors import UserError

_SEQUENCES = (collections.abc.Sequence, list, tuple)
_UNIONS = (typing.Union, types.UnionType)
_MAPPINGS = (collections.abc.Mapping, dict)
_Fields = ParamSpec("_Fields")
_Settings = TypeVar("_Settings")
_Result = TypeVar("_Result")

# Other kinds that a literal of a type stands for.
_READ_AS = {int: (float,), list: _SEQUENCES, tuple: _SEQUENCES, dict: _MAPPINGS}
_WORDS = {"true": True, "false": False, "none": None}


@dataclass(frozen=True, kw_only=True)
class Range:
    """The numbers that a parameter takes, stated in its annotation; each bound may be left out."""

    least: float = -math.inf
    above: float = -math.inf
    most: float = math.inf
    below: float = math.inf
    hint: str = ""  # how to get such a number

    def __contains__(self, number: float) -> bool:
        return self.least <= number <= self.most and self.above < number < self.below

    def __str__(self) -> str:
        bounds = {"at least": self.least, "above": self.above}
        bounds |= {"at most": self.most, "below": self.below}
        ends = [f"{word} {at}" for word, at in bounds.items() if math.isfinite(at)]
        return " and ".join(ends) + self.hint


PositiveInt = Annotated[int, Range(least=1)]
NonNegativeInt = Annotated[int, Range(least=0)]
# Seeds are kept as int64; PyTorch and NumPy draw larger ones.
Seed = Annotated[int, Range(least=0, most=2**63 - 1, hint=" (seed % 2**63 fits)")]
PositiveFloat = Annotated[float, Range(above=0)]
NonNegativeFloat = Annotated[float, Range(least=0)]
Share = Annotated[float, Range(least=0, most=1)]
Level = Annotated[float, Range(above=0, below=1)]


def takes_fields_of(
    settings: Callable[_Fields, _Settings],
) -> Callable[[Callable[[_Settings], _Result]], Callable[_Fields, _Result]]:
    """Returns a decorator: a function of one settings object takes the object's fields instead.

    So an entry keeps a flat list of keyword-only parameters for Gin, flags and callers, and the code
    has one object. Values are checked against the annotations in every call. In the docstring of the
    function, the line `settings: ...` is replaced by the attributes that the docstring of `settings`
    describes, a dataclass with `kw_only=True`.
    """
    described_fields = (inspect.getdoc(settings) or "").partition("\nAttributes:\n")[2]
    signature = inspect.signature(settings)
    parameters = [signature.parameters[name] for name in ordered_fields(settings)]

    def decorator(function: Callable[[_Settings], _Result]) -> Callable[_Fields, _Result]:
        def bound(*values: _Fields.args, **fields: _Fields.kwargs) -> Callable[[], _Result]:
            fields = expanded(fields)
            check_arguments(entry, fields)
            return functools.partial(function, settings(*values, **typed_arguments(entry, fields)))

        def entry(*values: _Fields.args, **fields: _Fields.kwargs) -> _Result:
            return bound(*values, **fields)()

        # Not `functools.wraps`: Gin looks for the parameters of the innermost function.
        entry.__module__, entry.__name__ = function.__module__, function.__name__
        entry.__qualname__ = function.__qualname__
        doc = inspect.getdoc(function) or ""
        entry.__doc__ = re.sub(r"(?m)^  settings: .*$", lambda _: described_fields.rstrip(), doc)
        hints = typing.get_type_hints(settings, include_extras=True)
        entry.__annotations__ = hints | {"return": typing.get_type_hints(function)["return"]}
        vars(entry)["__signature__"] = signature.replace(parameters=parameters)
        vars(entry)["bound"] = bound
        return entry

    return decorator


def ordered_fields(settings: Callable[..., object]) -> list[str]:
    """Returns the names of a settings class's fields in the order of its docstring, which `--help` has, too.

    A subclass has its inherited fields first.
    """
    order = re.findall(r"^  (\w+):", inspect.getdoc(settings) or "", re.MULTILINE)
    names = inspect.signature(settings).parameters
    return sorted(names, key=lambda name: order.index(name) if name in order else len(order))


def bound_call(
    function: Callable[..., _Result], arguments: Mapping[str, Any]
) -> Callable[[], _Result]:
    """Returns the call of a command's function, its arguments checked; this module is not on its stack."""
    bound: Callable[..., Callable[[], _Result]] | None = getattr(function, "bound", None)
    return bound(**arguments) if bound else functools.partial(function, **arguments)


@functools.cache  # a plan of 10,000 runs asks 30,000 times
def annotations_of(function: Callable[..., object]) -> types.MappingProxyType[str, Any]:
    """Returns the annotation of every parameter of `function`, resolved where it is a text."""
    # The undecorated function: its wrapper may live in another module.
    hints = typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    names = inspect.signature(function).parameters
    return types.MappingProxyType({name: hints.get(name, Any) for name in names})


def required_of(function: Callable[..., object]) -> set[str]:
    """Returns the parameters that have no default."""
    parameters = inspect.signature(function).parameters
    return {name for name, value in parameters.items() if value.default is value.empty}


def value_of_flag(texts: Sequence[str], annotation: Any) -> Any:
    """Returns the value that a flag's texts, one for each time it was given, stand for."""
    kinds, element = _kinds(annotation), _element(annotation)
    is_mapping = texts[0].startswith("{") and not kinds.isdisjoint(_MAPPINGS)
    if element is not None and str not in kinds and not is_mapping:
        # One for each time the flag was given, or cut at commas.
        items = list(texts)
        if len(texts) == 1 and texts[0].startswith(("[", "(")):
            with contextlib.suppress(ValueError, SyntaxError):
                items = [str(item) for item in ast.literal_eval(texts[0])]
        elif len(texts) == 1:
            items = texts[0].split(",")
        return [_literal(text, _kinds(element)) for text in items]
    if len(texts) > 1:
        return [_literal(text, kinds) for text in texts]
    if element is not None and not is_mapping:  # a list, or a word such as `all`
        item = _literal(texts[0], _kinds(element))
        if type(item) in _kinds(element) - kinds:
            return [item]
    # `none` of `str | Literal["none"] | None` is the word.
    words = {word for part in typing.get_args(annotation) for word in typing.get_args(part)}
    return texts[0] if texts[0] in words else _literal(texts[0], kinds)


def leaves(value: Any) -> Iterator[Any]:
    """Yields the leaves of nested mappings and lists."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def with_leaves(change: Callable[[Any], Any], value: Any) -> Any:
    """Returns a value in which each leaf, at any depth of mappings and lists, is changed."""
    if isinstance(value, Mapping):
        return {name: with_leaves(change, item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([with_leaves(change, item) for item in value])
    return change(value)


def with_texts(change: Callable[[str], str], value: Any) -> Any:
    """Returns a value in which each text, at any depth of mappings and lists, is changed."""
    return with_leaves(lambda leaf: change(leaf) if isinstance(leaf, str) else leaf, value)


def expanded(value: Any) -> Any:
    """Returns a value whose paths begin in the home folder for `~/`, and hold what `$NAME` stands for.

    A shell expands neither in `--run_dir=~/x`, nor anything in a file, and a folder called `~` would be made.
    A text is a path here if it has a slash, and begins with `~` or `$` or has no white space, as shell lines
    have.
    """

    def expanded_path(text: str) -> str:
        if "/" not in text or (text[0] not in "~$" and re.search(r"\s", text)):
            return text
        for name in re.findall(r"\$(\w+|\{\w+\})", text):
            if name.strip("{}") not in os.environ:
                raise UserError(
                    f"the path {text!r} has ${name}, which is not set in the environment; write the path "
                    f"without it, or set it: export {name.strip('{}')}=..."
                )
        return os.path.expanduser(os.path.expandvars(text))

    return with_texts(expanded_path, value)


def is_boolean(annotation: Any) -> bool:
    """Returns whether a parameter may be true or false, so that its flag needs no value."""
    return bool in _kinds(annotation)


def check_arguments(function: Callable[..., object], arguments: Mapping[str, Any]) -> None:
    """Refuses arguments that do not fit (`fits`) the annotations of a function's parameters."""
    check_types(function.__name__, arguments, annotations_of(function))


def check_types(name: str, values: Mapping[str, Any], annotations: Mapping[str, Any]) -> None:
    """Refuses values of another type than annotated, as `check_arguments`; `name` is that in Gin."""
    for parameter, annotation in annotations.items():
        if parameter in values and not fits(values[parameter], annotation):
            raise UserError(
                f"{name}.{parameter} is {shortened(values[parameter])}, expected "
                f"{described(annotation)}; correct it"
            )


def typed_arguments(
    function: Callable[..., object], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns arguments that fit their annotations, so that 3 and 3.0 are one value of a float."""
    annotations = annotations_of(function)
    return {name: typed(value, annotations.get(name, Any)) for name, value in arguments.items()}


def typed(value: Any, annotation: Any) -> Any:
    """Returns a value that fits an annotation, with ints as floats where only floats are annotated."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return typed(value, parts[0])
    if origin in _UNIONS:
        return typed(value, next((part for part in parts if fits(value, part)), Any))
    if annotation is float:
        return float(value)
    if origin in _SEQUENCES:
        items = [typed(item, parts[0]) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    if origin in _MAPPINGS:
        return {typed(key, parts[0]): typed(item, parts[1]) for key, item in value.items()}
    return value


def fits(value: Any, annotation: Any) -> bool:
    """Returns whether a value is of an annotated type and in the annotation's range.

    A bool is not a number, a text is not a list, and a number is finite. An int is a float, but a whole float
    such as `2.0` is not an int.
    """
    return _test_of(annotation)(value)


@functools.cache  # the markers of 28,000 runs ask a million times
def _test_of(annotation: Any) -> Callable[[Any], bool]:
    """Returns a function that checks whether a value fits an annotation."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any or annotation is object:
        return lambda _: True
    if origin is typing.Literal:
        return lambda value: any(type(value) is type(part) and value == part for part in parts)
    if origin is Annotated:
        of_kind, ranges = _test_of(parts[0]), parts[1:]
        return lambda value: of_kind(value) and all(value in part for part in ranges)
    if typing.is_typeddict(annotation):
        fields = typing.get_type_hints(annotation)
        # Their tests are made when a value is there, as a kind may hold itself.
        return lambda value: (
            isinstance(value, Mapping)
            and all(name in value and fits(value[name], part) for name, part in fields.items())
        )
    tests = [_test_of(part) for part in parts]
    if origin in _UNIONS:
        return lambda value: any(test(value) for test in tests)
    if origin in _SEQUENCES or annotation in _SEQUENCES:
        return lambda value: (
            isinstance(value, Sequence)
            and not isinstance(value, (str, bytes))
            and all(tests[0](item) for item in value if tests)
        )
    if origin in _MAPPINGS or annotation in _MAPPINGS:
        return lambda value: (
            isinstance(value, Mapping)
            and all(tests[0](key) and tests[1](item) for key, item in value.items() if tests)
        )
    if annotation is bool:
        return lambda value: isinstance(value, bool)
    if annotation is float:
        # `math.isfinite` fails for an int that no float can hold.
        return lambda value: (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and abs(value) <= sys.float_info.max
        )
    kind = type(None) if annotation is None else origin or annotation
    return lambda value: isinstance(value, kind) and not isinstance(value, bool)


def shortened(value: Any) -> str:
    """Returns a value in quotes for a message, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def described(annotation: Any) -> str:
    """Returns an annotation as users read it, such as `int at least 1 or None`."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any:
        return "any"
    if origin is Annotated:
        return " ".join([described(parts[0]), *map(str, parts[1:])])
    if origin in _UNIONS:
        return " or ".join(map(described, parts))
    if origin is typing.Literal:
        return " or ".join(map(repr, parts))
    if origin in _SEQUENCES:
        return f"list of {', '.join(described(part) for part in parts if part is not ...)}"
    if origin in _MAPPINGS:
        return f"mapping of {' to '.join(map(described, parts))}"
    if annotation is type(None):
        return "None"
    if typing.is_typeddict(annotation):
        hints = typing.get_type_hints(annotation).items()
        return f"fields {', '.join(f'{name} ({described(part)})' for name, part in hints)}"
    return getattr(annotation, "__name__", str(annotation))


def _kinds(annotation: Any) -> set[Any]:
    """Returns the alternatives of an annotation, without their parameters and ranges."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _kinds(parts[0])
    if origin in _UNIONS:
        return set().union(*map(_kinds, parts))
    return set(map(type, parts)) if origin is typing.Literal else {origin or annotation}


def _element(annotation: Any) -> Any:
    """Returns the annotation of a list's items; None where the annotation has no list."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in _SEQUENCES:
        return parts[0]
    inner = parts[:1] if origin is Annotated else parts if origin in _UNIONS else ()
    return next(filter(None, map(_element, inner)), None)


def _literal(text: str, kinds: set[Any]) -> Any:
    """Returns the value that a string spells if its type is among `kinds`, else the string."""
    if kinds == {str}:
        return text
    try:
        value = _WORDS[text.lower()] if text.lower() in _WORDS else ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    possible = {type(value), Any, *_READ_AS.get(type(value), ())}
    return value if possible & kinds or str not in kinds else text
