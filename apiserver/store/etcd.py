"""The store on etcd: one transaction a write, linearizable reads, failover between members.

The calls stay on one member and go to the next when it is unavailable or silent for a second.
Writes whose answer is lost are settled by `apiserver.store.etcd_outcome`, so that nobody is told
'failed' of a write that happened, or 'done' of one that did not.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from apiserver.store import etcd_wire as wire
from apiserver.store.base import (
    Expired,
    FutureRevision,
    KeyExists,
    OutcomeUnknown,
    Page,
    RevisionMismatch,
    Stored,
    StoreError,
    StoreUnavailable,
    ValueTooLarge,
    WatchBatch,
)
from apiserver.store.etcd_outcome import FENCE_KEY, RECEIPT_KEY, Outcomes
from apiserver.store.etcd_watch import EtcdWatch, stored_of
from apiserver.store.shared_call import SharedCall
from podyard.base import clock, ids
from podyard.base.backoff import Backoff

Tls = wire.Tls

# Items read at once where a caller wants all: a few MB, well inside an attempt's deadline.
_PAGE_ITEMS = 500
_ROUND = Backoff(base_s=0.1, cap_s=1.0)
# The failure branch also reads the fence, without its value.
_READ_FENCE = wire.RequestOp(request_range=wire.RangeRequest(key=FENCE_KEY, keys_only=True))
_REVISION_PROBE = wire.RangeRequest(key=FENCE_KEY, keys_only=True)


class EtcdStore:
    """`Store` on an etcd cluster. See `apiserver.store.base.Store` for the semantics.

    Args:
        endpoints: `host:2379` of each member; the order is the order of preference.
        tls: None speaks plain text, for tests.
        attempt_timeout_s: real seconds for one member to answer before the next is asked.
        timeout_s: real seconds for a call over all its attempts.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        tls: Tls | None = None,
        attempt_timeout_s: float = 1.0,
        timeout_s: float = 10.0,
    ) -> None:
        self._members = wire.Members(endpoints, tls)
        self._attempt_s = attempt_timeout_s
        self._timeout_s = timeout_s
        self._outcomes = Outcomes(self._members, self._ask, attempt_s=attempt_timeout_s)
        self._read_revision = SharedCall(self._read_revision_once)
        self._watches: set[EtcdWatch] = set()
        # The highest revision that any answer has shown: a write sent now gets a later one.
        self._seen_revision = 0
        self._closed = False

    async def get(self, key: str, *, revision: int = 0) -> tuple[Stored | None, int]:
        response = await self._ask("range", wire.RangeRequest(key=key.encode(), revision=revision))
        stored = stored_of(response.kvs[0]) if response.kvs else None
        return stored, response.header.revision

    async def list(self, prefix: str, *, start_after: str = "", limit: int = 0, revision: int = 0) -> Page:
        end = wire.prefix_end(prefix.encode())
        start = max(prefix.encode(), start_after.encode() + b"\0" if start_after else b"")
        items: list[Stored] = []
        while True:
            wanted = min(limit - len(items), _PAGE_ITEMS) if limit else _PAGE_ITEMS
            request = wire.RangeRequest(key=start, range_end=end, limit=wanted, revision=revision)
            response = await self._ask("range", request)
            items.extend(map(stored_of, response.kvs))
            revision = revision or response.header.revision
            if not response.more or (limit and len(items) >= limit):
                break
            start = response.kvs[-1].key + b"\0"
        return Page(items, revision, response.more, response.count - len(response.kvs))

    async def create(self, key: str, value: bytes) -> int:
        try:
            return await self._write(key, value, 0)
        except RevisionMismatch as found:
            if found.current is None:
                raise
            raise KeyExists(found.current) from None

    async def update(self, key: str, value: bytes, *, expected_revision: int) -> int:
        assert expected_revision > 0
        return await self._write(key, value, expected_revision)

    async def delete(self, key: str, *, expected_revision: int) -> int:
        assert expected_revision > 0
        return await self._write(key, None, expected_revision)

    async def watch(
        self, prefix: str, *, start_revision: int = 0, with_previous: bool = True
    ) -> AsyncGenerator[WatchBatch, None]:
        if not start_revision:
            start_revision = await self.current_revision() + 1
        watch = EtcdWatch(
            self._members,
            prefix,
            start_revision=start_revision,
            with_previous=with_previous,
            attempt_s=self._attempt_s,
            probe=_REVISION_PROBE,
        )
        watch.closed = self._closed
        self._watches.add(watch)
        batches = watch.batches()
        try:
            async for batch in batches:
                self._saw(batch.revision)
                yield batch
        finally:
            self._watches.discard(watch)
            await batches.aclose()

    async def request_progress(self) -> None:
        for watch in list(self._watches):
            await watch.request_progress()

    async def current_revision(self) -> int:
        return await self._read_revision()

    async def compact(self, revision: int) -> None:
        try:
            await self._ask("compact", wire.CompactionRequest(revision=revision))
        except Expired:
            pass

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for watch in self._watches:
            watch.close()
        await self._members.close()

    def _saw(self, revision: int) -> None:
        self._seen_revision = max(self._seen_revision, revision)

    async def _read_revision_once(self) -> int:
        response = await self._ask("range", _REVISION_PROBE)
        return int(response.header.revision)

    async def _ask(self, method: str, request: Any) -> Any:
        """An idempotent call: tried on one member after the other until the deadline."""
        tries = _Tries(self._members, self._timeout_s)
        while True:
            member = self._member()
            try:
                response = await getattr(member, method)(
                    request, timeout=self._attempt_s, metadata=wire.REQUIRE_LEADER
                )
            except wire.CallFailed as error:
                if wire.is_refused(error):
                    raise _refusal(error) from error
                self._members.give_up(member)
                await tries.failed(error)
            else:
                self._saw(response.header.revision)
                return response

    async def _write(self, key: str, value: bytes | None, expected_revision: int) -> int:
        """One transaction: put or delete `key` if it is at `expected_revision` (0: does not exist)."""
        if not self._seen_revision:
            await self.current_revision()
        tries = _Tries(self._members, self._timeout_s)
        while True:
            nonce = self._outcomes.nonce()
            fence_revision = self._outcomes.fence_revision
            request = _transaction(key.encode(), value, expected_revision, nonce, fence_revision)
            sent_after = self._seen_revision
            member = self._member()
            try:
                response = await member.txn(request, timeout=self._attempt_s, metadata=wire.REQUIRE_LEADER)
            except wire.CallFailed as error:
                if wire.is_refused(error):
                    raise _refusal(error) from error
                self._members.give_up(member)
                if not wire.is_unsent(error):
                    revision = await self._settle(key, nonce, sent_after)
                    if revision is not None:
                        return revision
                await tries.failed(error)
                continue
            self._saw(response.header.revision)
            if response.succeeded:
                return int(response.header.revision)
            found = response.responses[0].response_range.kvs
            if (found[0].mod_revision if found else 0) != expected_revision:
                raise RevisionMismatch(key, stored_of(found[0]) if found else None)
            # The key is as expected, so it was the fence: raised since, by us or by another store.
            fence = response.responses[1].response_range.kvs
            self._outcomes.fence_revision = fence[0].mod_revision if fence else 0
            tries.check()

    async def _settle(self, key: str, nonce: bytes, sent_after: int) -> int | None:
        try:
            return await self._outcomes.settle(nonce, sent_after=sent_after)
        except StoreError as error:
            raise OutcomeUnknown(f"it is unknown whether the write of {key} happened: {error}") from error

    def _member(self) -> wire.Member:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        return self._members.current


class _Tries:
    """The deadline of one call, and the pause after each round of failures over all members."""

    def __init__(self, members: wire.Members, timeout_s: float) -> None:
        self._members = members
        self._end_s = clock.real_monotonic_s() + timeout_s
        self._failures = 0

    def check(self, pause_s: float = 0.0, cause: wire.CallFailed | None = None) -> None:
        if clock.real_monotonic_s() + pause_s >= self._end_s:
            reason = "the write fence keeps moving" if cause is None else cause.details()
            raise StoreUnavailable(f"etcd does not answer in time: {reason}") from cause

    async def failed(self, error: wire.CallFailed) -> None:
        self._failures += 1
        round_number, position = divmod(self._failures, len(self._members.all))
        pause_s = 0.0 if position else _ROUND.delay_s(round_number - 1, ids.jitter())
        self.check(pause_s, error)
        await clock.real_sleep(pause_s)


def _transaction(
    key: bytes, value: bytes | None, expected_revision: int, nonce: bytes, fence_revision: int
) -> Any:
    if value is None:
        change = wire.RequestOp(request_delete_range=wire.DeleteRangeRequest(key=key))
    else:
        change = wire.RequestOp(request_put=wire.PutRequest(key=key, value=value))
    return wire.TxnRequest(
        compare=[_at_revision(key, expected_revision), _at_revision(FENCE_KEY, fence_revision)],
        success=[change, wire.RequestOp(request_put=wire.PutRequest(key=RECEIPT_KEY, value=nonce))],
        failure=[wire.RequestOp(request_range=wire.RangeRequest(key=key)), _READ_FENCE],
    )


def _at_revision(key: bytes, mod_revision: int) -> Any:
    compare = wire.Compare
    return compare(result=compare.EQUAL, target=compare.MOD, key=key, mod_revision=mod_revision)


def _refusal(error: wire.CallFailed) -> StoreError:
    """The store error of what etcd refused to do; nothing was done."""
    details = error.details() or ""
    if wire.is_compacted(error):
        return Expired(0)
    if wire.is_future(error):
        return FutureRevision(details)
    if wire.is_too_large(error):
        return ValueTooLarge(details)
    return StoreUnavailable(f"etcd refused the request: {details}")
