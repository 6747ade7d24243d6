"""How bring-up tells what it is doing; the CLI draws it, tests collect it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol


class Progress(Protocol):
    """Where news of a long operation goes."""

    def step(self, text: str) -> AbstractContextManager[None]:
        """Around one step; an exception inside marks it as failed."""
        ...

    def detail(self, text: str) -> None:
        """A line about the step that runs, such as one of a build's output."""
        ...

    def note(self, text: str) -> None:
        """Something that the user should read."""
        ...
