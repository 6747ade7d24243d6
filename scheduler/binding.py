"""Binds decided pods, in batches, and finds out what became of each.

A decided pod is *assumed* on its node. When the answer to its binding is lost, it may be bound or
not: it stays assumed, and the same binding is sent again until the answer is certain. Taking it
back would let its place be given away twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from podyard.api import errors
from podyard.api.errors import ApiError
from podyard.api.types import Binding, Pod, rpc
from podyard.base import clock, ids, log
from podyard.base.backoff import Backoff
from podyard.base.run import Background
from podyard.client.client import Client, error_of

_LOGGER = log.get_logger("scheduler")
_BATCH = 100
_BACKOFF = Backoff(base_s=0.2, cap_s=5.0)


@dataclass(slots=True)
class Decided:
    """A pod and the node that it was given."""

    pod: Pod
    node: str
    failures: int = 0


# (decided, problem): None means that the pod is bound to that node.
Settled = Callable[[Decided, ApiError | None], None]


class Binder:
    """Sends bindings.

    Args:
        settled: told of each pod once, when it is certain what became of it.
        wanted: whether a decided pod is still to be bound; asked before it is sent again.
    """

    def __init__(self, client: Client, settled: Settled, wanted: Callable[[Decided], bool]) -> None:
        self._client = client
        self._settled = settled
        self._wanted = wanted
        self._waiting: list[Decided] = []
        self._wake = asyncio.Event()

    def bind(self, pod: Pod, node: str) -> None:
        """Sends a binding soon."""
        self._submit(Decided(pod, node))

    def _submit(self, decided: Decided) -> None:
        self._waiting.append(decided)
        self._wake.set()

    async def run(self) -> None:
        """Binds for ever; ends by cancellation only."""
        async with Background() as background:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
                    await self._send(background, batch)

    async def _send(self, background: Background, batch: list[Decided]) -> None:
        try:
            results = await self._client.bulk([_operation(decided) for decided in batch])
            problems = [error_of(result) for result in results]
        except ApiError as error:
            problems = [error] * len(batch)
        for decided, problem in zip(batch, problems, strict=True):
            if problem is None or not _uncertain(problem):
                self._settled(decided, problem)
            else:
                background.start(self._resolve(decided, problem), name="resolve binding")

    async def _resolve(self, decided: Decided, problem: ApiError) -> None:
        """Finds out whether a pod is bound; sends its binding again when it is not."""
        metadata = decided.pod.metadata
        _LOGGER.debug("binding uncertain", pod=metadata.name, node=decided.node, error=problem.message)
        if problem.retryable:
            delay_s = max(_BACKOFF.delay_s(decided.failures, ids.jitter()), problem.retry_after_s)
            await clock.sleep(delay_s)
            decided.failures += 1
            if self._wanted(decided):
                self._submit(decided)
            else:
                self._settled(decided, problem)
            return
        while True:
            # A conflict: it is bound already, perhaps by a try of ours whose answer was lost.
            try:
                present = await self._client.get(Pod, metadata.name, metadata.namespace)
            except errors.NotFound as error:
                self._settled(decided, error)
                return
            except ApiError as error:
                decided.failures += 1
                if not error.retryable or not self._wanted(decided):
                    self._settled(decided, problem)
                    return
                await clock.sleep(_BACKOFF.delay_s(decided.failures, ids.jitter()))
                continue
            ours = present.metadata.uid == metadata.uid and present.spec.nodeName == decided.node
            self._settled(decided, None if ours else problem)
            return


def _uncertain(problem: ApiError) -> bool:
    return problem.retryable or isinstance(problem, (errors.Conflict, errors.InternalError))


def _operation(decided: Decided) -> rpc.BulkOperation:
    metadata = decided.pod.metadata
    binding = Binding(
        metadata={"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
        target={"kind": "Node", "name": decided.node},
    )
    return rpc.BulkOperation(
        verb=rpc.BulkOperation.BIND,
        version="v1",
        resource="pods",
        namespace=metadata.namespace,
        name=metadata.name,
        object=binding.SerializeToString(),
    )
