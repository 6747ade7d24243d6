"""What became of a write whose answer was lost.

A transaction whose connection broke, or whose deadline passed, may have happened, may never have
left, or may still lie in the socket of a frozen member and happen in a minute. Reading the key
back decides nothing by itself: the value found may be another writer's identical bytes (two API
servers that both count 5 up to 6), the key may have been written and deleted again, and the
delayed transaction may be yet to come. So each write carries two things in its transaction:

- a **receipt**: it also puts a nonce of its own under one fixed key. That key's history is then the
  exact list of the writes that happened, in order, whatever became of their keys.
- a **fence**: it also compares the mod revision of a second fixed key.

To settle a lost answer, the fence is raised (put anew) through a member that answers. From that
revision F on, every write sent before fails its comparison, since mod revisions never repeat: what
has not happened by F never will. Then the receipts from the last revision seen before the write was
sent up to F are read; the write happened exactly if its nonce is among them, at that revision.
There is no ABA: neither values nor the key's own revisions are taken as evidence.

Raising the fence makes other writes in flight fail the same comparison; they see from the answer
that it was the fence and not their key, and are sent again. Both keys are single and fixed, so
nothing accumulates in etcd beyond the history that compaction removes.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from apiserver.store import etcd_wire as wire
from apiserver.store.base import Expired, StoreUnavailable
from apiserver.store.shared_call import SharedCall
from podyard.base import clock, ids

# Outside /registry/, so that no watch of objects sees them.
FENCE_KEY = b"/podyard/write-fence"
RECEIPT_KEY = b"/podyard/write-receipt"

_READ_RECEIPTS_S = 5.0


@dataclass(frozen=True, slots=True)
class _Settled:
    """All writes sent before `fence_revision` are decided: `happened` maps nonces to revisions."""

    fence_revision: int
    happened: dict[bytes, int]


class Outcomes:
    """Receipts and the fence of one store.

    Args:
        ask: sends an idempotent request to a member (its method's name, request) with retries.
    """

    def __init__(
        self, members: wire.Members, ask: Callable[[str, Any], Awaitable[Any]], *, attempt_s: float
    ) -> None:
        self._members = members
        self._ask = ask
        self._attempt_s = attempt_s
        # 0 = the fence was never raised; the first answer that says otherwise corrects it.
        self.fence_revision = 0
        self._writer = ids.uid()
        self._count = itertools.count()
        self._open: dict[bytes, int] = {}
        self._settle_all = SharedCall(self._settle_once)

    def nonce(self) -> bytes:
        """A name that no other write ever has."""
        return f"{self._writer}/{next(self._count)}".encode()

    async def settle(self, nonce: bytes, *, sent_after: int) -> int | None:
        """Decides one write; many lost answers at a time share the work.

        Args:
            sent_after: a revision that the store had reached before the write was sent.

        Returns:
            The revision at which it happened, None when it did not and never will.

        Raises:
            StoreUnavailable: no member answers.
            Expired: the receipts are compacted already.
        """
        self._open[nonce] = sent_after
        try:
            settled = await self._settle_all()
        finally:
            del self._open[nonce]
        return settled.happened.get(nonce)

    async def _settle_once(self) -> _Settled:
        after = min(self._open.values())
        own = self.nonce()
        raise_fence = wire.TxnRequest(
            success=[
                wire.RequestOp(request_put=wire.PutRequest(key=FENCE_KEY, value=own)),
                # It also ends the list of receipts, which tells the reader that it has seen all.
                wire.RequestOp(request_put=wire.PutRequest(key=RECEIPT_KEY, value=own)),
            ]
        )
        # Raising twice because an answer was lost does no harm.
        response = await self._ask("txn", raise_fence)
        revision: int = response.header.revision
        self.fence_revision = max(self.fence_revision, revision)
        return _Settled(revision, await self._receipts(after + 1, revision))

    async def _receipts(self, first: int, last: int) -> dict[bytes, int]:
        """The nonces of all writes at the revisions `first` to `last`."""
        end_s = clock.real_monotonic_s() + 2 * _READ_RECEIPTS_S
        while True:
            member = self._members.current
            call = member.watch(metadata=wire.REQUIRE_LEADER, timeout=_READ_RECEIPTS_S)
            try:
                return await _read_receipts(call, first, last)
            except (wire.CallFailed, StoreUnavailable) as error:
                self._members.give_up(member)
                if clock.real_monotonic_s() >= end_s:
                    raise StoreUnavailable(f"receipts cannot be read: {error}") from error
            finally:
                call.cancel()
            await clock.real_sleep(0.1)


async def _read_receipts(call: Any, first: int, last: int) -> dict[bytes, int]:
    create = wire.WatchCreateRequest(key=RECEIPT_KEY, start_revision=first)
    await call.write(wire.WatchRequest(create_request=create))
    found: dict[bytes, int] = {}
    while True:
        response = await call.read()
        if response is wire.EOF or response.canceled:
            if response is not wire.EOF and response.compact_revision:
                raise Expired(response.compact_revision)
            raise StoreUnavailable("the member ended the reading of receipts")
        for event in response.events:
            found[event.kv.value] = event.kv.mod_revision
            if event.kv.mod_revision >= last:
                return found
