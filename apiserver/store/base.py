"""What the API server asks of its storage: a dozen verbs over keys and bytes.

`apiserver.store.etcd` and `apiserver.store.memory` implement `Store`; one suite runs against both.
The registry and the watch cache are its only callers. Nothing here knows what the bytes mean.

The invariant that everything above stands on: **revisions are one total order.** Each successful
write gets a revision greater than any given before, and an observer that lists at revision R and
watches from R + 1 sees every change exactly once, in order.

Upstream counterpart: k8s.io/apiserver/pkg/storage/etcd3 over go.etcd.io/etcd/client/v3.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Stored:
    """One key's state at some revision.

    Attributes:
        create_revision: revision of the write that made the key (a deleted and re-made key starts anew).
        mod_revision: revision of the last write; never used twice, also not after a deletion.
    """

    key: str
    value: bytes
    create_revision: int
    mod_revision: int


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing, all of it as it was at one revision.

    Attributes:
        items: in the order of their keys' bytes.
        revision: the revision of the snapshot; the next page and a watch go on from it.
        more: keys follow that the limit cut off.
        remaining: how many.
    """

    items: list[Stored]
    revision: int
    more: bool
    remaining: int


@dataclass(frozen=True, slots=True)
class StoreEvent:
    """One change of one key.

    Attributes:
        value: the new bytes, None for a deletion.
        previous: the state before; None for a key that did not exist, and for every event of a
            watch that was opened without previous states.
        create_revision: of the new state; 0 for a deletion.
    """

    key: str
    revision: int
    value: bytes | None
    previous: Stored | None
    create_revision: int = 0


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """What one message of a watch brought.

    Attributes:
        events: in revision order; all events of one revision stand in one batch. Empty for a
            progress mark.
        revision: every event at or below it has been delivered: the last event's revision, or the
            progress mark's. Resume at `revision + 1`.
    """

    events: tuple[StoreEvent, ...]
    revision: int


class StoreError(Exception):
    """The base of what a store raises."""


class KeyExists(StoreError):
    """`create` found the key; nothing was written."""

    def __init__(self, current: Stored) -> None:
        super().__init__(f"key {current.key} exists at revision {current.mod_revision}")
        self.current = current


class RevisionMismatch(StoreError):
    """The key is not at the expected revision; nothing was written.

    Attributes:
        current: the state that was found, None when the key does not exist.
    """

    def __init__(self, key: str, current: Stored | None) -> None:
        found = "does not exist" if current is None else f"is at revision {current.mod_revision}"
        super().__init__(f"key {key} {found}")
        self.current = current


class Expired(StoreError):
    """The revision asked for has been compacted away: list anew.

    Attributes:
        compact_revision: the revision that history starts at; 0 when the store did not say.
    """

    def __init__(self, compact_revision: int) -> None:
        super().__init__(f"the required revision has been compacted (up to {compact_revision})")
        self.compact_revision = compact_revision


class FutureRevision(StoreError):
    """The revision asked for has not been reached yet."""


class ValueTooLarge(StoreError):
    """The write is larger than the store takes; nothing was written."""


class StoreUnavailable(StoreError):
    """The store did not answer in time. A write that ends so did not happen and never will."""


class OutcomeUnknown(StoreError):
    """A write was sent and the store cannot be reached to learn whether it happened.

    It may have happened, or may still. Say so to the client; never call it failed or done.
    """


class Store(Protocol):
    """The storage protocol. Every call has a deadline of its own and raises `StoreUnavailable` at it.

    Reads are linearizable: a `get`, `list` or `current_revision` that starts after a write was
    acknowledged, to anyone, sees that write. Cancelling a read is always safe; cancelling a write
    leaves its outcome open, as a client that hangs up does.
    """

    async def get(self, key: str, *, revision: int = 0) -> tuple[Stored | None, int]:
        """Reads one key.

        Args:
            revision: read the state as of this revision; 0 the newest.

        Returns:
            The state, None when the key does not exist (then), and the store's revision at the read.

        Raises:
            Expired: the revision is compacted.
            FutureRevision: the revision has not been reached.
        """
        ...

    async def list(self, prefix: str, *, start_after: str = "", limit: int = 0, revision: int = 0) -> Page:
        """Reads the keys that start with `prefix`, all as of one revision.

        Args:
            start_after: the last key of the page before; only later keys are read.
            limit: most items; 0 for all.
            revision: as of this revision; 0 the newest. A following page passes the first page's.

        Raises:
            Expired: the revision is compacted.
            FutureRevision: the revision has not been reached.
        """
        ...

    async def create(self, key: str, value: bytes) -> int:
        """Writes a key that does not exist; returns its revision.

        Raises:
            KeyExists: it exists.
            ValueTooLarge: nothing was written.
            StoreUnavailable: nothing was written.
            OutcomeUnknown: it may have been.
        """
        ...

    async def update(self, key: str, value: bytes, *, expected_revision: int) -> int:
        """Writes a key whose mod revision is `expected_revision` (above 0); returns the new one.

        Raises:
            RevisionMismatch: it is at another revision, or does not exist.
            ValueTooLarge, StoreUnavailable, OutcomeUnknown: as `create`.
        """
        ...

    async def delete(self, key: str, *, expected_revision: int) -> int:
        """Deletes a key whose mod revision is `expected_revision` (above 0).

        Returns:
            The revision of the deletion.

        Raises:
            RevisionMismatch: it is at another revision, or does not exist.
            StoreUnavailable, OutcomeUnknown: as `create`.
        """
        ...

    def watch(
        self, prefix: str, *, start_revision: int = 0, with_previous: bool = True
    ) -> AsyncGenerator[WatchBatch, None]:
        """Follows the changes of all keys that start with `prefix`, for ever.

        It survives what the store survives (a broken connection, a dead member) without losing,
        doubling or reordering an event. Close it (`contextlib.aclosing`).

        Args:
            start_revision: the first revision to deliver; 0 for what comes after the iteration starts.
            with_previous: deliver `StoreEvent.previous`, which doubles what is sent.

        Raises:
            Expired: history after `start_revision - 1` is not complete any more, that is
                `start_revision <= compact_revision`. Raised while iterating, also in the middle of a
                watch that fell behind a compaction.
        """
        ...

    async def request_progress(self) -> None:
        """Asks for a progress mark on each open watch, to be delivered after the events before it.

        A hint: it may be lost with a connection, and a watch that lags answers later. Ask again.
        """
        ...

    async def current_revision(self) -> int:
        """The store's revision, linearizable; requests in flight share a read."""
        ...

    async def compact(self, revision: int) -> None:
        """Forgets history below `revision`; what is current at it stays.

        Compacting at or below an earlier compaction is no error.

        Raises:
            FutureRevision: the revision has not been reached.
        """
        ...

    async def close(self) -> None:
        """Ends all watches and connections; idempotent."""
        ...
