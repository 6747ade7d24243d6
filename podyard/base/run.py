"""The life of a process: one loop, one task group, signals, exit codes.

SIGTERM or SIGINT sets the stop event; the component then drains and returns. A second signal
exits at once. An exception anywhere ends the process with code 1: its supervisor starts it anew,
and it works from what it lists and watches, never from what it remembered.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from podyard.base import log

_SECOND_SIGNAL_EXIT = 130


def run(main: Callable[[asyncio.Event], Awaitable[None]], *, component: str) -> int:
    """Runs `main(stop)` to its end on a fresh loop.

    Returns:
        0 after a clean end, 1 after a failure.
    """
    logger = log.get_logger(component)
    try:
        asyncio.run(_with_signals(main))
    except KeyboardInterrupt:
        return 0
    except BaseExceptionGroup as group:
        for error in _leaves(group):
            logger.error("component failed", error=repr(error), exc_info=error)
        return 1
    except Exception as error:  # process main: report and let the supervisor restart
        logger.error("component failed", error=repr(error), exc_info=error)
        return 1
    return 0


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found


async def _with_signals(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            sys.stderr.flush()
            os._exit(_SECOND_SIGNAL_EXIT)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    await main(stop)


class Background:
    """Tasks that live as long as a block: the first that fails ends the block.

    A task group whose end cancels what is still running, for servers and watch loops.
    """

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Background:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *failure: Any) -> None:
        for task in list(self._tasks):
            task.cancel()
        await self._group.__aexit__(*failure)

    def start(self, work: Coroutine[Any, Any, Any], *, name: str | None = None) -> asyncio.Task[Any]:
        """Starts a task that this block owns."""
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def until(stop: asyncio.Event, *works: Coroutine[Any, Any, Any]) -> None:
    """Runs endless `works` until `stop` is set, then cancels them; a failure passes through."""
    async with Background() as background:
        for work in works:
            background.start(work)
        await stop.wait()
