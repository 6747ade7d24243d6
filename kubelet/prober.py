"""Probes of running containers: one task a probe, results for status and plan.

A result belongs to one container (its id): a restarted one begins anew. The pod's worker is woken
when a result changes, and reads `health`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from kubelet.handlers import Handlers
from kubelet.probes import (
    KINDS,
    LIVENESS,
    READINESS,
    STARTUP,
    Health,
    Streak,
    after,
    probe_of,
    unhealthy_text,
    with_result,
)
from kubelet.runtime.base import RUNNING, ObservedPod, RuntimeContainer
from podyard.api.types import Container, Pod, core_v1
from podyard.base import clock, ids
from podyard.base.run import Background


class PodProber:
    """Probes one pod's containers.

    Args:
        background: owns the tasks.
        health: container id -> what is known of it; filled here, read by plan and status.
        wake: called when a result changes.
        record: records an event: (type, reason, message, container name).
    """

    def __init__(
        self,
        handlers: Handlers,
        background: Background,
        health: dict[str, Health],
        wake: Callable[[], None],
        record: Callable[[str, str, str, str], None],
    ) -> None:
        self._handlers = handlers
        self._background = background
        self._wake = wake
        self._record = record
        self._health = health
        self._tasks: dict[str, dict[str, asyncio.Task[None]]] = {}

    def health(self, container_id: str) -> Health:
        """What is known of a container."""
        return self._health.get(container_id, Health())

    def follow(self, pod: Pod, observed: ObservedPod, address: str, *, ending: bool) -> None:
        """Probes what runs now, and nothing else; a pod that ends keeps only its readiness probes.

        Args:
            address: of the pod, as its node reaches it.
        """
        running = {c.id for c in observed.containers if c.state == RUNNING}
        for container_id in [known for known in self._tasks if known not in running]:
            self._stop(container_id, KINDS)
            del self._tasks[container_id]
        for container_id in [known for known in self._health if known not in running]:
            del self._health[container_id]
        if ending:
            for container_id in self._tasks:
                self._stop(container_id, (kind for kind in KINDS if kind != READINESS))
            return
        for container in pod.spec.containers:
            latest = next(iter(observed.of(container.name)), None)
            if latest is not None and latest.id in running and latest.id not in self._tasks:
                self._begin(pod, container, latest, address)

    def _begin(self, pod: Pod, container: Container, latest: RuntimeContainer, address: str) -> None:
        wanted = [(kind, probe) for kind in KINDS if (probe := probe_of(container, kind)) is not None]
        if container.HasField("startupProbe") and _was_started(pod, latest.id):
            # Seen by a kubelet before this one: what has started once is not asked again.
            self._health[latest.id] = Health(started=True)
            wanted = [(kind, probe) for kind, probe in wanted if kind != STARTUP]
        self._tasks[latest.id] = {
            kind: self._background.start(
                self._probe(kind, probe, container, latest.id, address, latest.started_at_s),
                name=f"{kind} probe of {container.name}",
            )
            for kind, probe in wanted
        }

    def _stop(self, container_id: str, kinds: Iterable[str]) -> None:
        for kind in kinds:
            task = self._tasks[container_id].pop(kind, None)
            if task is not None:
                task.cancel()

    async def _probe(
        self,
        kind: str,
        probe: core_v1.Probe,
        container: Container,
        container_id: str,
        address: str,
        started_at_s: float,
    ) -> None:
        period_s = float(probe.periodSeconds or 10)
        streak = Streak()
        await clock.sleep(started_at_s + probe.initialDelaySeconds - clock.now_s())
        while True:
            if kind == STARTUP or self._startup_over(container, container_id):
                outcome = await self._handlers.run(
                    probe.handler, container, container_id, address, float(probe.timeoutSeconds or 1)
                )
                streak = after(streak, probe, ok=outcome.ok)
                if not outcome.ok:
                    self._record("Warning", "Unhealthy", unhealthy_text(kind, outcome), container.name)
                self._settle(container_id, kind, streak.result)
                if streak.result is not None and (
                    kind == STARTUP or (kind == LIVENESS and not streak.result)
                ):
                    return  # decided: it has started, or it will be ended
            # Spread a little, so that a node's probes do not all fall together.
            await clock.sleep(period_s * (1 + 0.02 * ids.jitter()))

    def _startup_over(self, container: Container, container_id: str) -> bool:
        return not container.HasField("startupProbe") or self.health(container_id).started is True

    def _settle(self, container_id: str, kind: str, result: bool | None) -> None:
        if container_id not in self._tasks:
            return
        before = self.health(container_id)
        now = with_result(before, kind, result)
        if now != before:
            self._health[container_id] = now
            self._wake()


def _was_started(pod: Pod, container_id: str) -> bool:
    return any(
        status.started and status.containerID.endswith(f"//{container_id}")
        for status in pod.status.containerStatuses
    )
