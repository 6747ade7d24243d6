"""Colours of what the commands print: on a terminal only, and never where the user wants none.

click takes them out of what goes into a pipe or a file; `allowed` is what it is told besides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import click

# A cell's text -> its colour; None for none.
Colouring = Callable[[str], str | None]

_STATES = {"running": "green", "paused": "yellow", "created": "yellow", "restarting": "yellow"}


def allowed(environment: Mapping[str, str]) -> bool | None:
    """What click is told about colours: False for never, None for as the stream is.

    Source: no-color.org; TERM=dumb is what terminals without colours call themselves.
    """
    return False if environment.get("NO_COLOR") or environment.get("TERM") == "dumb" else None


def of_state(state: str) -> str:
    """The colour of a container's state, in the engine's words."""
    return _STATES.get(state, "red")


def of_readiness(word: str) -> str | None:
    """The colour of what the column READY says."""
    if word == "-":
        return None
    return {"yes": "green", "unknown": "yellow"}.get(word, "red")


def of_share(share: str) -> str:
    """The colour of `7/8`."""
    part, _, whole = share.partition("/")
    return "green" if part == whole else "yellow"


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, colouring: Mapping[str, Colouring]
) -> None:
    """Prints columns as wide as their widest cell.

    Args:
        colouring: of the columns that have any, by their header.
    """
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    click.echo(_line([click.style(cell, bold=True) for cell in header], header, widths))
    for row in rows:
        shown = [
            click.style(cell, fg=colouring[title](cell)) if title in colouring else cell
            for title, cell in zip(header, row, strict=True)
        ]
        click.echo(_line(shown, row, widths))


def _line(shown: Sequence[str], plain: Sequence[str], widths: Sequence[int]) -> str:
    # Only the text is coloured, not what fills the column: the end of a line stays free of both.
    padded = [
        text + " " * (width - len(cell)) for text, cell, width in zip(shown, plain, widths, strict=True)
    ]
    return "   ".join(padded).rstrip()
