"""Probes of running containers: one task a probe, results for status and plan.

A result belongs to one container (its id): a restarted one begins anew. The pod's worker is woken
when a result changes, and reads `health`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kubelet.handlers import Handlers
from kubelet.probes import (
    KINDS,
    STARTUP,
    Health,
    Streak,
    after,
    probe_of,
    unhealthy_text,
    with_result,
)
from kubelet.runtime.base import RUNNING, ObservedPod
from podyard.api.types import Container, Pod, core_v1
from podyard.base import clock, ids


class PodProber:
    """Probes one pod's containers.

    Args:
        group: owns the tasks.
        wake: called when a result changes.
        record: records an event: (type, reason, message, container name).
    """

    def __init__(
        self,
        handlers: Handlers,
        group: asyncio.TaskGroup,
        wake: Callable[[], None],
        record: Callable[[str, str, str, str], None],
    ) -> None:
        self._handlers = handlers
        self._group = group
        self._wake = wake
        self._record = record
        self._health: dict[str, Health] = {}
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}

    def health(self, container_id: str) -> Health:
        """What is known of a container."""
        return self._health.get(container_id, Health())

    def follow(self, pod: Pod, observed: ObservedPod, *, ending: bool) -> None:
        """Probes what runs now, and nothing else; a pod that ends keeps only its readiness probes."""
        running = {c.id: c for c in observed.containers if c.state == RUNNING}
        for container_id in [known for known in self._tasks if known not in running]:
            self._stop(container_id)
        addresses = observed.sandbox.ips if observed.sandbox else ()
        address = addresses[0] if addresses else pod.status.hostIP or "127.0.0.1"
        for container in pod.spec.containers:
            latest = next(iter(observed.of(container.name)), None)
            if latest is not None and latest.id in running and latest.id not in self._tasks and not ending:
                self._begin(container, latest.id, address, latest.started_at_s)

    def stop(self) -> None:
        """Ends all probing."""
        for container_id in list(self._tasks):
            self._stop(container_id)

    def _begin(self, container: Container, container_id: str, address: str, started_at_s: float) -> None:
        tasks = []
        for kind in KINDS:
            probe = probe_of(container, kind)
            if probe is not None:
                work = self._probe(kind, probe, container, container_id, address, started_at_s)
                tasks.append(self._group.create_task(work, name=f"{kind} probe of {container.name}"))
        self._tasks[container_id] = tasks

    def _stop(self, container_id: str) -> None:
        for task in self._tasks.pop(container_id):
            task.cancel()
        self._health.pop(container_id, None)

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
                if kind == STARTUP and streak.result:
                    return
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
