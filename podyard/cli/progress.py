"""Progress on standard error: a spinner on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from podyard.base import clock
from podyard.cluster.progress import Progress

_DETAIL_WIDTH = 100


def for_this_terminal() -> Progress:
    """The progress display that fits standard error."""
    return SpinnerProgress() if sys.stderr.isatty() else PlainProgress()


class PlainProgress:
    """One line when a step ends; a line for each detail, since nothing can be overwritten."""

    def __init__(self) -> None:
        self._details = 0

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """See `Progress`."""
        begun_s = clock.real_monotonic_s()
        print(f"{text} ...", file=sys.stderr, flush=True)
        try:
            yield
        except BaseException:
            print(f"{text}: failed", file=sys.stderr, flush=True)
            raise
        print(f"{text}: done ({clock.real_monotonic_s() - begun_s:.1f} s)", file=sys.stderr, flush=True)

    def detail(self, text: str) -> None:
        """See `Progress`."""
        print(f"    {text[:_DETAIL_WIDTH]}", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """See `Progress`."""
        print(text, file=sys.stderr, flush=True)


class SpinnerProgress:
    """A spinner with the step and its latest detail; a mark when it ends."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._status = self._console.status("")
        self._text = ""

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """See `Progress`."""
        from rich.markup import escape

        begun_s = clock.real_monotonic_s()
        self._text = escape(text)
        self._status.update(self._text)
        self._status.start()
        try:
            yield
        except BaseException:
            self._status.stop()
            self._console.print(f"[red]✗[/] {self._text}")
            raise
        self._status.stop()
        self._console.print(f"[green]✓[/] {self._text} [dim]{clock.real_monotonic_s() - begun_s:.1f} s[/]")

    def detail(self, text: str) -> None:
        """See `Progress`."""
        from rich.markup import escape

        self._status.update(f"{self._text} [dim]{escape(text[:_DETAIL_WIDTH])}[/]")

    def note(self, text: str) -> None:
        """See `Progress`."""
        self._console.print(text, markup=False)
