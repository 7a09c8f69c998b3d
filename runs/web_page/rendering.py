"""Renders HTML pages of one file: nothing is fetched, and values never become markup."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from multiberts.runs.errors import counted


@cache
def _compiled() -> Any:
    """Returns the code of templates that this process has compiled, which takes longer than a page."""
    import jinja2

    class Compiled(jinja2.BytecodeCache):
        def __init__(self) -> None:
            self.codes: dict[tuple[str, str], CodeType | None] = {}

        def load_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
            bucket.code = self.codes.get((bucket.key, bucket.checksum))

        def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
            self.codes[bucket.key, bucket.checksum] = bucket.code

    return Compiled()


def render(template: Path, filters: Mapping[str, Callable[..., Any]], **values: Any) -> str:
    """Renders a Jinja template into a page.

    Templates extend `page.html.j2` from this folder, or include its `page.css` and `tables.js`: the
    colours of both schemes, and the script that sorts and filters tables. All keep to a content
    security policy without addresses.

    Args:
      template: file of the page.
      filters: of the template, by name; `counted` is there for all.
      **values: of the template; all text among them is escaped.

    Returns:
      The page as HTML.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([template.parent, Path(__file__).parent]),
        bytecode_cache=_compiled(),
        optimized=False,  # or what a filter makes of a constant would be kept, too
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"counted": counted, **filters}
    return environment.get_template(template.name).render(**values)
