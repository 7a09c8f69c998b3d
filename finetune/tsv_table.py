"""A TSV file with a header, read by the names of its columns: quotes are text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, read_lines


def read_tsv(path: PathLike, needed: Sequence[str], layout: str) -> Iterator[tuple[int, list[str]]]:
    """The number of each line and its values of the needed columns.

    Args:
      path: a file, plain or `.gz`, with as many columns as its header in every line.
      needed: columns it must have; further ones are passed over.
      layout: whose layout it should be, for errors: `HANS`, `SNLI` ...

    Raises:
      UserError: missing or empty file, no such column, or a line of another length.
    """
    lines = read_lines(path)
    header = lines[0].split("\t")
    missing = [name for name in needed if header.count(name) != 1]
    if missing:
        raise UserError(
            f"{path} line 1: found the columns {', '.join(header)}, expected {', '.join(needed)} "
            f"(lacking {', '.join(missing)}); fetch the file again as {layout} has it"
        )
    indices = [header.index(name) for name in needed]
    for number, line in enumerate(lines[1:], start=2):
        fields = line.split("\t")
        if len(fields) != len(header):
            raise UserError(
                f"{path} line {number}: found {len(fields)} columns, expected {len(header)}; fetch "
                f"the file again as {layout} has it"
            )
        yield number, [fields[index] for index in indices]
