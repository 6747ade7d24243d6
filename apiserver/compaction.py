"""Forgets the store's history that nobody can ask for any more.

Each server compacts at the revision that it saw one period ago, so at least a period of history is
kept for watches that resume and lists that go on. Several servers doing so only compact more often.

Source: DefaultCompactInterval of apiserver storagebackend.
"""

from __future__ import annotations

from collections.abc import Callable

from apiserver.store.base import Store, StoreError
from podyard.base import clock, ids, log

PERIOD_S = 300.0

_logger = log.get_logger("compaction")


async def run(store: Store, compacted: Callable[[int], None], *, period_s: float = PERIOD_S) -> None:
    """Compacts for ever.

    Args:
        compacted: told the revision of each compaction, for whoever else keeps history.
        period_s: real seconds between compactions, and the least history that is kept.
    """
    known = 0
    while True:
        await clock.real_sleep(period_s * (1 + 0.05 * ids.jitter()))
        try:
            if known:
                await store.compact(known)
                compacted(known)
            known = await store.current_revision()
        except StoreError as error:
            _logger.warning("compaction failed", revision=known, error=str(error))
