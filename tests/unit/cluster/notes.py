"""News of an operation, for tests to look at."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext


class Notes:
    """Progress of which notes and steps are kept."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.steps: list[str] = []

    def step(self, text: str) -> AbstractContextManager[None]:
        """See `Progress`."""
        self.steps.append(text)
        return nullcontext()

    def detail(self, text: str) -> None:
        """See `Progress`."""

    def note(self, text: str) -> None:
        """See `Progress`."""
        self.notes.append(text)
