"""What happened in a run, as one repeatable text: for comparing runs and for reading them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from podyard.api import resources
from podyard.api.types import Message


class History:
    """Every change of every object, in the one order in which they were stored."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, now_s: float, text: str) -> None:
        """Adds a line of its own, such as a fault."""
        self.lines.append(f"{now_s:.3f} {text}")

    def change(self, now_s: float, type_: str, kind: str, obj: Message) -> None:
        metadata = obj.metadata  # type: ignore[attr-defined]
        body = hashlib.sha256(obj.SerializeToString(deterministic=True)).hexdigest()[:12]
        name = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
        self.note(now_s, f"{type_} {kind} {name} @{metadata.resourceVersion} {body}")

    def digest(self) -> str:
        """Equal for equal histories."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()

    def __str__(self) -> str:
        return "\n".join(self.lines)


def kinds(rows: Iterable[resources.Resource] = resources.RESOURCES) -> list[resources.Resource]:
    """The kinds that a history follows: each storage once, without events and leases."""
    return [row for row in rows if row.storage is None and row.plural not in ("events", "leases")]
