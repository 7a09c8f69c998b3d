"""The public names of `multiberts.stats`, each imported when it is first used."""

from __future__ import annotations

import ast
import functools
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class LazyPackage(ModuleType):
    """A package that imports a public name when it is first asked for.

    The names are those of its `__all__`, and their modules those of the imports under its
    `if TYPE_CHECKING`, which editors and mypy read, too. (`lazy_loader`, which scikit-image and NetworkX
    use, reads a second file.)
    """

    __all__: list[str]

    def __getattr__(self, name: str) -> Any:
        """Imports a public name, or a public folder."""
        modules = modules_of(self.__name__)
        if name in modules:
            value = getattr(import_module(modules[name]), name)
            setattr(self, name, value)
            return value
        if name in self.__all__:
            return import_module(f"{self.__name__}.{name}")
        from multiberts.stats.guessed import unknown_public_name  # not for names that are there

        folders = [each for each in self.__all__ if each not in modules]
        inside = [
            f"{folder}.{each}"
            for folder in folders
            for each in modules_of(f"{self.__name__}.{folder}")
        ]
        raise AttributeError(unknown_public_name(name, [*self.__all__, *inside]))

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets an attribute, but no folder in place of the function of its name (`compare`)."""
        if not (isinstance(value, ModuleType) and name in modules_of(self.__name__)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        """Returns the public names, imported or not, and what every module has."""
        return sorted({*super().__dir__(), *self.__all__})


def public(name: str) -> Any:
    """Returns a public name, for a method of a result that stands for a function."""
    return getattr(import_module("multiberts.stats"), name)


@functools.cache
def modules_of(package: str) -> dict[str, str]:
    """Returns the module of each public name; a folder's is the package itself and is left out."""
    source = find_spec(package).loader.get_source(package)  # type: ignore[union-attr]
    return {
        alias.name: str(node.module)
        for block in ast.parse(source).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module != package
        for alias in node.names
    }
