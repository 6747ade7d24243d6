"""What the watch cache holds and hands out: objects, changes, and the events watchers see.

Everything here is shared by all watchers and made once: treat it as read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"


class CachedObject:
    """One object at one revision: its key and its stored bytes.

    The registry subclasses it and hangs what is made of the bytes (message, encodings, selector
    values) on the instance, each made when first wanted; the cache itself never looks inside.

    Attributes:
        revision: the object's resourceVersion. For the object of a DELETED event it is the
            revision at which it went, while `value` is its last state.
    """

    __slots__ = ("create_revision", "key", "revision", "value")

    def __init__(self, key: str, value: bytes, create_revision: int, revision: int) -> None:
        self.key = key
        self.value = value
        self.create_revision = create_revision
        self.revision = revision

    @property
    def labels(self) -> Mapping[str, str]:
        """What label selectors select by."""
        return {}

    @property
    def fields(self) -> Mapping[str, str]:
        """What field selectors select by."""
        return {}

    def release(self) -> None:
        """Gives up what was made of the bytes; whoever asks for it once more has it made once more."""

    def at_revision(self, revision: int) -> CachedObject:
        """The same state under another resourceVersion."""
        return type(self)(self.key, self.value, self.create_revision, revision)

    def __repr__(self) -> str:
        return f"<{self.key} at {self.revision}>"


# Makes a CachedObject of (key, stored bytes, create revision, revision).
MakeObject = Callable[[str, bytes, int, int], CachedObject]


class WatchEvent(NamedTuple):
    """What a watcher sees: ADDED, MODIFIED or DELETED, and the object."""

    type: str
    object: CachedObject


class Change:
    """One change of one object in the one order of all kinds.

    Attributes:
        order: position in that order; a revision may hold several changes.
        object: the new state, None for a deletion.
        previous: the state before, None for a creation.
        index_values: the (index, value) pairs that the object has or had.
    """

    __slots__ = (
        "_events",
        "_gone",
        "index_values",
        "key",
        "object",
        "order",
        "previous",
        "resource",
        "revision",
    )

    def __init__(
        self,
        order: int,
        resource: str,
        key: str,
        revision: int,
        object_: CachedObject | None,
        previous: CachedObject | None,
    ) -> None:
        self.order = order
        self.resource = resource
        self.key = key
        self.revision = revision
        self.object = object_
        self.previous = previous
        self.index_values: list[tuple[str, str]] = []
        self._gone: CachedObject | None = None
        self._events: dict[str, WatchEvent] = {}

    @property
    def size_bytes(self) -> int:
        return len((self.object or self.previous or _NOTHING).value)

    def event(self, matches: Callable[[CachedObject], bool] | None) -> WatchEvent | None:
        """What a watcher with this filter sees of the change, None for nothing.

        An object that stops matching is DELETED with its last matching state, one that starts to
        match is ADDED. Source: k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go.
        """
        now, before = self.object, self.previous
        if matches is not None:
            now = now if now is not None and matches(now) else None
            before = before if before is not None and matches(before) else None
        if now is not None:
            return self._shared(ADDED if before is None else MODIFIED, now)
        if before is not None:
            if self._gone is None:
                self._gone = before.at_revision(self.revision)
            return self._shared(DELETED, self._gone)
        return None

    def release(self) -> None:
        """Keeps the bytes alone of what this change superseded: nobody is likely to ask for it any more."""
        if self.previous is not None:
            self.previous.release()
        self._gone = None
        self._events.clear()

    def _shared(self, type_: str, object_: CachedObject) -> WatchEvent:
        event = self._events.get(type_)
        if event is None:
            event = self._events[type_] = WatchEvent(type_, object_)
        return event


_NOTHING = CachedObject("", b"", 0, 0)


@dataclass(frozen=True, slots=True)
class Scope:
    """What one watcher follows of one resource.

    Attributes:
        resource: the resource's key prefix, such as `/registry/pods/`.
        prefix: narrower: a namespace's prefix, or one object's whole key. Empty for all.
        matches: the selectors as a function; None for all.
        index: an (index, value) that `matches` implies, so that the watcher is only asked about
            objects that have the value.
    """

    resource: str
    prefix: str = ""
    matches: Callable[[CachedObject], bool] | None = None
    index: tuple[str, str] | None = None

    def covers(self, key: str) -> bool:
        if not self.prefix or self.prefix.endswith("/"):
            return key.startswith(self.prefix or self.resource)
        return key == self.prefix


@dataclass(frozen=True, slots=True)
class WatchFrame:
    """What a watcher gets at once.

    Attributes:
        events: in order; empty for a bookmark.
        revision: the watcher has seen everything up to it: a resume point.
        bookmark: send it as a BOOKMARK.
        initial_events_end: the bookmark that ends the initial events.
    """

    events: list[WatchEvent]
    revision: int
    bookmark: bool = False
    initial_events_end: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """Objects in the order of their keys, all as of one revision.

    Attributes:
        more: objects follow that the limit cut off.
        remaining: how many.
    """

    objects: list[Any]
    revision: int
    more: bool = False
    remaining: int = 0


class RevisionTooOld(Exception):
    """The history from this revision on is not complete any more; list anew (410).

    Attributes:
        oldest: a watch may start from this revision or later ones.
    """

    def __init__(self, requested: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {requested} ({oldest})")
        self.requested = requested
        self.oldest = oldest


class RevisionTooLarge(Exception):
    """The cache has not reached the revision in time."""

    def __init__(self, requested: int, current: int) -> None:
        super().__init__(f"Too large resource version: {requested}, current: {current}")
        self.requested = requested
        self.current = current


class SlowWatcher(Exception):
    """The watcher did not take its events in time and lost its place.

    What it took so far is complete up to the last frame's revision; it may watch again from there.
    """


class CacheNotReady(Exception):
    """The first listing has not been made in time."""
