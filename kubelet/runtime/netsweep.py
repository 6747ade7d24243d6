"""Addresses and network namespaces that no sandbox has: a runtime killed while it made one forgot them.

The network plugins allocate before the runtime has written down for whom, so what a kill leaves
between the two is nobody's and nothing upstream ever frees it; the node's range would run dry.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kubelet import mounts
from kubelet.runtime.cni import ADDRESS_DIRECTORY, NETWORK
from podyard.base import log

_LOGGER = log.get_logger("kubelet.network")
_PREFIX = "cni-"


@dataclass(frozen=True, slots=True)
class Trace:
    """An address held for a sandbox, or (without one) a namespace that no process is in."""

    path: Path
    sandbox_id: str = ""


def unclaimed(traces: Collection[Trace], sandbox_ids: Collection[str]) -> frozenset[Trace]:
    """Those that belong to none of the sandboxes."""
    return frozenset(trace for trace in traces if trace.sandbox_id not in sandbox_ids)


class NetworkSweeper:
    """Frees what is nobody's at two looks in a row, between which no sandbox was being made.

    Args:
        addresses: the folder of the host-local plugin: a file an address, the sandbox's id in it.
        namespaces: where network namespaces are mounted.
        processes: procfs.
    """

    def __init__(
        self,
        addresses: Path = Path(ADDRESS_DIRECTORY) / NETWORK,
        namespaces: Path = Path("/run/netns"),
        processes: Path = Path("/proc"),
    ) -> None:
        self._addresses = addresses
        self._namespaces = namespaces
        self._processes = processes
        self._in_flight = 0
        self._started = 0
        self._suspects: frozenset[Trace] = frozenset()
        self._suspected_at = 0

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Surrounds the making of a sandbox: it has an address before the runtime lists it."""
        self._started += 1
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    async def sweep(self, sandbox_ids: Callable[[], Awaitable[Collection[str]]]) -> list[Trace]:
        """One look; answers what was freed.

        Args:
            sandbox_ids: asks the runtime for the sandboxes that it has, in any state.
        """
        if self._in_flight:
            self._suspects = frozenset()
            return []
        started = self._started
        traces = await asyncio.to_thread(self._look)
        suspects = unclaimed(traces, await sandbox_ids()) if traces else frozenset()
        quiet = started == self._started == self._suspected_at
        freed = sorted(suspects & self._suspects, key=str) if quiet else []
        self._suspects, self._suspected_at = suspects, started
        for trace in freed:
            _LOGGER.info("freeing what no sandbox has", path=str(trace.path), sandbox=trace.sandbox_id)
            await asyncio.to_thread(self._free, trace)
        return freed

    def _look(self) -> list[Trace]:
        return [*self._held_addresses(), *self._empty_namespaces()]

    def _held_addresses(self) -> list[Trace]:
        return [
            Trace(path, holder) for path in _entries(self._addresses) if (holder := _holder(path)) is not None
        ]

    def _empty_namespaces(self) -> list[Trace]:
        present = [path for path in _entries(self._namespaces) if path.name.startswith(_PREFIX)]
        if not present:
            return []
        used = {_inode(path / "ns" / "net") for path in _entries(self._processes) if path.name.isdigit()}
        return [Trace(path) for path in present if _inode(path) not in used]

    def _free(self, trace: Trace) -> None:
        if not trace.sandbox_id:
            with suppress(OSError):  # a mount that stays keeps its file: the next look tries again
                mounts.detach(trace.path)
            trace.path.unlink(missing_ok=True)
            return
        # The plugin's own lock: the address may have been freed and given to another sandbox by now.
        with (self._addresses / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _holder(trace.path) == trace.sandbox_id:
                trace.path.unlink(missing_ok=True)


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _inode(path: Path) -> int:
    """0 for none: a process may have ended."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def _holder(path: Path) -> str | None:
    """The sandbox for which an address is held; None when the file is no address's."""
    if not path.name[:1].isdigit():
        return None
    try:
        return path.read_text(encoding="utf-8").split()[0]
    except (OSError, IndexError):
        return None
