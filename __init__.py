"""Pre-trains many BERT seeds, fine-tunes them, and compares what they predict.

    import multiberts

    print(multiberts.compare("base.csv", "new.csv"))

The folders of the checkout are the subpackages: `multiberts.stats`, `multiberts.bert`, and so on. The
functions of `multiberts.stats` that most people need are here, too: `__init__.pyi` lists them. Each is
imported when it is first used, without TensorFlow.
"""

from importlib import import_module  # by name: for linters this file lies below all rooms
from typing import Any

__version__ = "0.2.0.dev0"


def __getattr__(name: str) -> Any:
    """Imports a function of the statistics when it is first asked for."""
    if name not in __dir__():
        raise AttributeError(f"module 'multiberts' has no attribute {name!r}")
    module = import_module("multiberts.stats")
    return module if name == "stats" else getattr(module, name)


def __dir__() -> list[str]:
    """Returns the public names, imported or not, and what every module has."""
    public = import_module("multiberts.stats.public_names").modules_of(__name__)
    return sorted({*globals(), *public, "stats"})
