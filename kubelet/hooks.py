"""Lifecycle hooks: what a container wants done right after its start and before its end.

Source: lifecycle/handlers.go; kuberuntime_container.go startContainer, executePreStopHook.
"""

from __future__ import annotations

from collections.abc import Callable

from kubelet.handlers import Handlers
from kubelet.podspec import find_container
from podyard.api.types import Container, Pod
from podyard.base import clock

# Upstream sets no limit for postStart; a hook that hangs must not keep a worker for good.
_POST_START_TIMEOUT_S = 600.0
# What a container gets to end with after its preStop hook, however long that took.
_LEAST_AFTER_HOOK_S = 2.0


class Hooks:
    """The hooks of one pod's containers.

    Args:
        record: records an event: (type, reason, message, container name).
    """

    def __init__(self, handlers: Handlers, record: Callable[[str, str, str, str], None]) -> None:
        self._handlers = handlers
        self._record = record
        self._begun: set[str] = set()

    async def after_start(self, container: Container, container_id: str, address: str) -> str | None:
        """Runs postStart; answers why it failed."""
        hook = container.lifecycle.postStart
        if not container.lifecycle.HasField("postStart"):
            return None
        outcome = await self._handlers.run(hook, container, container_id, address, _POST_START_TIMEOUT_S)
        if outcome.ok:
            return None
        self._record("Warning", "FailedPostStartHook", "PostStartHook failed", container.name)
        return outcome.text

    async def before_stop(
        self, pod: Pod | None, name: str, container_id: str, address: str, grace_s: float
    ) -> float:
        """Runs preStop, once for a container; answers what is left of the grace."""
        container = find_container(pod, name) if pod is not None else None
        if container is None or not container.lifecycle.HasField("preStop"):
            return grace_s
        if grace_s <= 0 or container_id in self._begun:
            return grace_s
        self._begun.add(container_id)
        began_s = clock.now_s()
        hook = container.lifecycle.preStop
        outcome = await self._handlers.run(hook, container, container_id, address, grace_s)
        if not outcome.ok:
            self._record("Warning", "FailedPreStopHook", "PreStopHook failed", name)
        return max(grace_s - (clock.now_s() - began_s), _LEAST_AFTER_HOOK_S)
