"""The public names of `multiberts.stats`, imported on first use."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pkgutil import resolve_name
from types import ModuleType
from typing import Any


class LazyPackage(ModuleType):
    """A package that imports its public names on first use.

    Names and modules are those of the imports in `__init__.pyi`, which editors and mypy read, too, as with
    `lazy_loader` in scikit-image and NetworkX. A public name may lie in a room above.
    """

    __all__: list[str]

    def __getattr__(self, name: str) -> Any:
        """Imports a public name, or a package of another room."""
        modules = modules_of(self.__name__)
        if name in modules:
            value = resolve_name(f"{modules[name]}.{name}")
            if inspect.isfunction(value):
                value = _with_checked_keywords(value, self.__name__)
            setattr(self, name, value)
            return value
        from multiberts.runs.errors import nearest  # only needed for unknown names

        packages = {each: room for each, room in modules.items() if room.count(".") == 1}
        inside = [
            f"{package}.{each}"
            for package, room in packages.items()
            for each in modules_of(f"{room}.{package}")
        ]
        here = self.__name__.replace(".papers.", ".stats.")  # where users find it
        there_is = f"dir({here.partition('.')[2]}) lists what there is"
        cure = nearest(name, [*self.__all__, *inside], there_is)
        raise AttributeError(f"{here} has no attribute {name}; {cure}")

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets an attribute, unless a subpackage would replace a function with the same name (`compare`)."""
        if not (isinstance(value, ModuleType) and name in modules_of(self.__name__)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        """Returns the public names, imported or not, and the attributes of every module."""
        return sorted({*super().__dir__(), *self.__all__})


def _with_checked_keywords(function: Callable[..., Any], package: str) -> Callable[..., Any]:
    """Returns a function that answers a misspelt or guessed keyword with the name that it has here."""
    from multiberts.stats.errors import check_keywords  # not needed by the package alone

    parameters = inspect.signature(function).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return function

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        check_keywords(function.__name__, kwargs, [*parameters])
        return function(*args, **kwargs)

    checked.__module__ = package  # where pickle finds it
    return checked


# Prints results, which call it by name: numbers import no words.
_PRINTING = "multiberts.report.printing"


def printing() -> Any:
    """Returns the module with the words, tables and figures of results."""
    return import_module(_PRINTING)


def public(name: str) -> Any:
    """Returns a public function, for methods of results that call it."""
    return getattr(import_module("multiberts.stats"), name)


@functools.cache
def modules_of(package: str) -> dict[str, str]:
    """Returns the module of each public name (of a package, its room); `multiberts` has those above."""
    spec, (root, _, is_room) = find_spec(package), package.partition(".")
    source = spec.loader.get_data(f"{spec.origin}i")  # type: ignore[union-attr]
    of_root = modules_of(root) if is_room else {}
    return {
        alias.name: of_root[alias.name] if is_room and node.module == root else str(node.module)
        for node in ast.parse(source).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
