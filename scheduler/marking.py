"""Writes why a pod can't be scheduled into its PodScheduled condition, beside the decisions.

One write a pod at a time, the latest text wins. A pod is bound only once no such write is under
way: one that came late would say of a bound pod that it is unschedulable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from podyard.api import times
from podyard.api.errors import ApiError
from podyard.api.types import Pod
from podyard.base import clock, ids, log
from podyard.base.backoff import Backoff
from podyard.base.run import Background
from podyard.client.client import STRATEGIC_PATCH, Client

_LOGGER = log.get_logger("scheduler")
_AT_ONCE = 16
_TRIES = 6
_BACKOFF = Backoff(base_s=0.5, cap_s=10.0)


class Marker:
    """Writes the conditions of unschedulable pods."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._wanted: dict[str, tuple[Pod, str]] = {}
        self._busy: dict[str, list[Callable[[], None]]] = {}  # pod uid -> what waits for its write

    def mark(self, background: Background, pod: Pod, message: str) -> None:
        """Writes the condition, unless the pod says so already."""
        uid = pod.metadata.uid
        if uid not in self._busy and _says(pod, message):
            return
        self._wanted[uid] = (pod, message)
        if uid not in self._busy:
            self._busy[uid] = []
            background.start(self._write_all(uid), name="mark unschedulable")

    def when_idle(self, uid: str, then: Callable[[], None]) -> None:
        """Calls `then` once no write of this pod is under way; what is still to be written is dropped."""
        self._wanted.pop(uid, None)
        waiting = self._busy.get(uid)
        if waiting is None:
            then()
        else:
            waiting.append(then)

    async def _write_all(self, uid: str) -> None:
        failures = 0
        try:
            while uid in self._wanted:
                wanted = self._wanted[uid]
                try:
                    async with self._slots:
                        await self._write(*wanted)
                    done = True
                except ApiError as error:
                    failures += 1
                    done = not error.retryable or failures >= _TRIES
                    _LOGGER.debug("condition not written", uid=uid, error=error.message)
                if done and self._wanted.get(uid) is wanted:
                    del self._wanted[uid]
                elif uid in self._wanted and not done:
                    await clock.sleep(_BACKOFF.delay_s(failures - 1, ids.jitter()))
        finally:
            self._wanted.pop(uid, None)
            for then in self._busy.pop(uid):
                then()

    async def _write(self, pod: Pod, message: str) -> None:
        metadata = pod.metadata
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": times.text(_since_s(pod)),
            "lastProbeTime": None,
        }
        await self._client.patch(
            Pod,
            metadata.name,
            metadata.namespace,
            body={"metadata": {"uid": metadata.uid}, "status": {"conditions": [condition]}},
            patch_type=STRATEGIC_PATCH,
            subresource="status",
        )


def _says(pod: Pod, message: str) -> bool:
    return any(c.type == "PodScheduled" and c.message == message for c in pod.status.conditions)


def _since_s(pod: Pod) -> int:
    """Since when the pod is unschedulable."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return int(condition.lastTransitionTime.seconds)
    return int(clock.now_s())
