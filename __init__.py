"""Pre-trains many BERT seeds, fine-tunes them, and compares what they predict.

    import multiberts

    print(multiberts.compare("base.csv", "new.csv"))

The folders of the checkout are the subpackages: `multiberts.stats`, `multiberts.bert`, and so on. The
functions that most people need are here, too: `compare`, `compare_arms`, `compare_tasks` and `read` of
`multiberts.stats`, each imported when it is first used, without TensorFlow.
"""

from typing import Any

__version__ = "0.2.0.dev0"
_OF_STATS = ("compare", "compare_arms", "compare_tasks", "read", "stats")


def __getattr__(name: str) -> Any:
    """Imports a function of the statistics when it is first asked for."""
    if name not in _OF_STATS:
        raise AttributeError(f"module 'multiberts' has no attribute {name!r}")
    from importlib import import_module  # no import for linters: this file lies below all rooms

    module = import_module("multiberts.stats")
    return module if name == "stats" else getattr(module, name)


def __dir__() -> list[str]:
    """Returns the public names, imported or not, and what every module has."""
    return sorted({*globals(), *_OF_STATS})
