"""Renders HTML pages of one file: nothing is fetched, and values never become markup."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from multiberts.runs.errors import counted


@cache
def _environment(folder: Path) -> Any:
    """Returns the environment of a folder's templates, which compiles each of them once."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, Path(__file__).parent]),
        optimized=False,  # or what a filter makes of a constant would be kept, too
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


def render(template: Path, filters: Mapping[str, Callable[..., Any]], **values: Any) -> str:
    """Renders a Jinja template into a page.

    Templates extend `page.html.j2` from this folder, with its script that sorts and filters tables, or
    include its `page.css`, the colours of both schemes. All keep to a content security policy without
    addresses.

    Args:
      filters: {name: filter} of the template; `counted` is always defined.
      **values: variables of the template; text is escaped.
    """
    environment = _environment(template.parent)
    environment.filters |= {"counted": counted, **filters}
    return str(environment.get_template(template.name).render(**values))
