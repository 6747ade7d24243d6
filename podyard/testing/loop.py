"""The virtual loop: an asyncio loop whose clock jumps to the next timer instead of waiting.

A whole cluster runs on it in one process, so 300 s pass in a millisecond. A seed shuffles the
ready callbacks and so explores interleavings. No sockets; executor jobs are waited for in real
time. Nothing ready and no timer is a deadlock, and raises.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import random
import selectors
from typing import Any


class DeadlockError(RuntimeError):
    """Every task waits and no timer is set: nothing can ever happen again."""


class _VirtualSelector(selectors.DefaultSelector):
    """Advances time instead of sleeping."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.jobs = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.jobs and (timeout is None or timeout > 0):
            # A thread works for us: its end arrives through the loop's own wake-up socket.
            return super().select(None)
        if timeout is None:
            raise DeadlockError("deadlock: every task waits and no timer is set")
        self.now_s += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; `start_s` is the first value of its clock, in seconds since the epoch."""

    is_virtual = True

    def __init__(self, seed: int | None = None, start_s: float = 1_700_000_000.0) -> None:
        self._virtual = _VirtualSelector()
        self._virtual.now_s = start_s
        super().__init__(self._virtual)
        # A finer resolution never comes due at epoch-sized times.
        self._clock_resolution = 1e-6
        self._shuffle = None if seed is None else random.Random(seed).shuffle

    def time(self) -> float:
        return self._virtual.now_s

    def _run_once(self) -> None:
        ready = getattr(self, "_ready")  # noqa: B009 - private to asyncio
        if self._shuffle is not None and len(ready) > 1:
            order = list(ready)
            self._shuffle(order)
            ready.clear()
            ready.extend(order)
        super()._run_once()  # type: ignore[misc]

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        future = super().run_in_executor(executor, func, *args)
        self._virtual.jobs += 1
        future.add_done_callback(self._job_done)
        return future

    def _job_done(self, _: Any) -> None:
        self._virtual.jobs -= 1

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        executor: concurrent.futures.Executor | None = getattr(self, "_default_executor", None)
        if executor is not None:
            executor.shutdown(wait=True)
