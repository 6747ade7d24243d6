"""Whether the store answers, for the health endpoints."""

from __future__ import annotations

from apiserver.store.base import Store, StoreError
from apiserver.store.shared_call import SharedCall
from podyard.base import clock, log

_LOGGER = log.get_logger("apiserver.health")
# Source: --etcd-healthcheck-timeout, --etcd-readycheck-timeout.
_TIMEOUT_S = 2.0
# Health is asked for by anybody, without a credential: the store hears of it this rarely.
_FRESH_S = 1.0


class StoreHealth:
    """The store's last answer to a read that needs a majority of its members.

    Nothing is asked in between: a server that nobody asks for its health costs nothing.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ask = SharedCall(self._ask_once)
        self._asked_s = float("-inf")
        self._problem: str | None = "the store has not been asked yet"

    async def refresh(self) -> None:
        """Asks the store, unless it was asked a moment ago; takes two seconds at most."""
        if clock.real_monotonic_s() - self._asked_s >= _FRESH_S:
            await self._ask()

    def problem(self) -> str | None:
        """What was wrong when it was last asked."""
        return self._problem

    async def _ask_once(self) -> None:
        if clock.real_monotonic_s() - self._asked_s < _FRESH_S:
            return  # Answered while this one waited its turn.
        before = self._problem
        try:
            async with clock.real_timeout(_TIMEOUT_S):
                await self._store.current_revision()
            self._problem = None
        except TimeoutError:
            self._problem = f"no answer within {_TIMEOUT_S} s"
        except StoreError as error:
            self._problem = str(error)
        self._asked_s = clock.real_monotonic_s()
        if self._problem is not None and before is None:
            _LOGGER.warning("the store does not answer", error=self._problem)
