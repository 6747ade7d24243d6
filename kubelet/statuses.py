"""Statuses on their way to the API server: only differences, only when there are any.

What is compared is the last status that the server is known to have: the pod as seen through the
watch, or what this process wrote since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from podyard.api import codec, errors
from podyard.api.errors import ApiError
from podyard.api.types import Message, Pod, PodStatus
from podyard.base import clock, ids, log
from podyard.base.backoff import Backoff
from podyard.client.client import STRATEGIC_PATCH, Client

_LOGGER = log.get_logger("kubelet.status")
_WRITES_AT_ONCE = 16
_BACKOFF = Backoff(base_s=0.5, cap_s=10.0)


def status_patch(old: Message, new: Message) -> dict[str, Any] | None:
    """A strategic merge patch of a pod's or node's status; None when nothing differs.

    Conditions merge by type and resources by name, so those of other writers stay. Of all else that
    differs the kubelet is the writer.
    """
    before, after = codec.to_dict(old), codec.to_dict(new)
    patch: dict[str, Any] = {}
    for name in before.keys() | after.keys():
        if before.get(name) == after.get(name):
            continue
        if name == "conditions":
            known = {entry["type"]: entry for entry in before.get(name, [])}
            patch[name] = [
                _condition_patch(known.get(entry["type"], {}), entry)
                for entry in after[name]
                if known.get(entry["type"]) != entry
            ]
        elif name in ("podIPs", "hostIPs", "addresses"):
            # These lists merge by their keys: replace them as a whole.
            patch[name] = [{"$patch": "replace"}, *after.get(name, [])]
        elif name in ("capacity", "allocatable"):
            patch[name] = _differences(before.get(name, {}), after.get(name, {}))
        else:
            patch[name] = after.get(name)
    if patch.get("conditions") == []:
        del patch["conditions"]
    return patch or None


def _condition_patch(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Makes a condition what it should be: fields that it has no more are taken away."""
    return {**dict.fromkeys(old.keys() - new.keys()), **new}


def _differences(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {key: new.get(key) for key in old.keys() | new.keys() if old.get(key) != new.get(key)}


class StatusWriter:
    """Writes statuses, a bounded number at once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._written: dict[str, Pod] = {}
        self._slots = asyncio.Semaphore(_WRITES_AT_ONCE)

    async def publish(self, pod: Pod, status: PodStatus) -> bool:
        """Brings the server's status of a pod to `status`.

        Returns:
            True when it is there or never will be: the pod is gone, or the server refuses it for good.
        """
        uid = pod.metadata.uid
        known = self._written.get(uid)
        if known is None or int(known.metadata.resourceVersion) < int(pod.metadata.resourceVersion):
            known = pod
            self._written.pop(uid, None)
        patch = status_patch(known.status, status)
        if patch is None:
            return True
        try:
            async with self._slots:
                self._written[uid] = await self._client.patch(
                    Pod,
                    pod.metadata.name,
                    pod.metadata.namespace,
                    body={"metadata": {"uid": uid}, "status": patch},
                    patch_type=STRATEGIC_PATCH,
                    subresource="status",
                )
        except errors.NotFound:
            self._written.pop(uid, None)
        except errors.Conflict:
            # Another pod has the name now, and the watch will say so; or a change came in between.
            return False
        except ApiError as error:
            _LOGGER.warning("status not written", pod=pod.metadata.name, error=error.message)
            return not error.retryable
        return True

    def forget(self, uid: str) -> None:
        self._written.pop(uid, None)


class StatusChannel:
    """The way of one pod's statuses to the server: the latest wins, and failures are tried again.

    The pod's worker never waits for the server: a pod runs on, restarts and ends without it.

    Args:
        writer: shared by the node's pods.
        on_settled: called when the latest status has been written.
    """

    def __init__(self, writer: StatusWriter, on_settled: Callable[[], None]) -> None:
        self._writer = writer
        self._on_settled = on_settled
        self._wanted: tuple[Pod, PodStatus] | None = None
        self._wake = asyncio.Event()

    @property
    def settled(self) -> bool:
        """Whether nothing waits to be written."""
        return self._wanted is None

    def offer(self, pod: Pod, status: PodStatus) -> None:
        """Makes `status` the one to be written."""
        self._wanted = (pod, status)
        self._wake.set()

    async def run(self) -> None:
        """Writes; ends by cancellation only."""
        failures = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            wanted = self._wanted
            if wanted is None:
                continue
            if await self._writer.publish(*wanted):
                failures = 0
                if self._wanted is wanted:
                    self._wanted = None
                    self._on_settled()
                continue
            await clock.real_sleep(_BACKOFF.delay_s(failures, ids.jitter()))
            failures += 1
            self._wake.set()
