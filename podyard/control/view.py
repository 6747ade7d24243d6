"""What a reconcile function may look at: informers at one moment, and the time."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any, Protocol

from podyard.api.types import Key, M, Message


class Lister(Protocol):
    """The reading half of an informer."""

    def get(self, key: Key) -> Any: ...

    def __iter__(self) -> Any: ...

    def by_index(self, name: str, value: str) -> Any: ...

    def seen_at_s(self, key: Key) -> float | None: ...

    def gone_at_s(self, key: Key) -> float | None: ...


class View:
    """A read-only window. Objects in it are shared: change a `copy_of` instead.

    Attributes:
        now_s: cluster time, seconds since the epoch.
        started_at_s: when this process began to act; a new leader knows nothing of what was before.
        facts: what the controller's `gather` read; None without one.
    """

    facts: Any = None
    started_at_s: float = 0.0

    def __init__(self, listers: Mapping[type[Message], Lister], now_s: float) -> None:
        self._listers = listers
        self.now_s = now_s

    def get(self, kind: type[M], key: Key) -> M | None:
        """One object, or None."""
        found: M | None = self._listers[kind].get(key)
        return found

    def list(self, kind: type[M], namespace: str = "") -> builtins.list[M]:
        """All objects of a kind (in a namespace), ordered by key."""
        if namespace:
            found: builtins.list[M] = self._listers[kind].by_index("namespace", namespace)
            return found
        return list(self._listers[kind])

    def by_index(self, kind: type[M], index: str, value: str) -> builtins.list[M]:
        """Objects that an index lists under a value, ordered by key."""
        found: builtins.list[M] = self._listers[kind].by_index(index, value)
        return found

    def owned(self, kind: type[M], owner_uid: str) -> builtins.list[M]:
        """Objects whose controller is the object with this uid."""
        return self.by_index(kind, "owner", owner_uid)

    def seen_at_s(self, kind: type[Message], key: Key) -> float | None:
        """When this process saw the object's present state; its own clock, not the writer's."""
        return self._listers[kind].seen_at_s(key)

    def gone_at_s(self, kind: type[Message], key: Key) -> float | None:
        """When this process saw the object go; None if it did not."""
        return self._listers[kind].gone_at_s(key)
