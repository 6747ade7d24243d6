"""One pod's worker: look, plan, act, report; again when something changes.

The worker owns the pod from its first sight to the removal of the last trace on the node. It
holds no truth: after a restart of the kubelet a new worker finds the pod running and adopts it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

from kubelet import podplan
from kubelet.environment import container_env
from kubelet.images import ImagePuller, PullError
from kubelet.podbuild import (
    BuildError,
    ClusterNetwork,
    HostFacts,
    container_spec,
    mount_specs,
    sandbox_spec,
)
from kubelet.podplan import (
    Action,
    Announce,
    Hold,
    Memory,
    RemoveContainer,
    RemoveSandbox,
    StartContainer,
    StartSandbox,
    StopContainer,
    StopSandbox,
    Waiting,
)
from kubelet.podspec import find_container, full_name, grace_s
from kubelet.podstatus import NodeFacts, pod_status
from kubelet.runtime.base import ObservedPod, Runtime, RuntimeFailure
from kubelet.volumes import VolumeError, Volumes
from podyard.api.types import Pod, PodStatus
from podyard.base import clock, ids, log
from podyard.base.backoff import Backoff

_LOGGER = log.get_logger("kubelet.worker")
# Upstream: pod sync error back-off, from its transient value up.
_ERROR_BACKOFF = Backoff(base_s=1.0, cap_s=10.0)
# Upstream: syncFrequency; refreshes ConfigMap and Secret volumes.
_RESYNC_S = 60.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every worker of a node shares.

    Attributes:
        starts: bounds how many sandboxes and containers start at once: more gains nothing.
        lookup: (kind, namespace, name) -> object or None, for ConfigMaps and Secrets.
        publish: writes a pod's status; returns once the server has it.
        confirm: removes a pod's object once nothing of it runs.
        record: (pod, type, reason, message, field path) records an event.
        tidy: removes logs and cgroups of a pod that is gone.
        network_ready: None, or why pods can't have a network now.
    """

    runtime: Runtime
    images: ImagePuller
    volumes: Volumes
    starts: asyncio.Semaphore
    lookup: Callable[[Any, str, str], Any]
    publish: Callable[[Pod, PodStatus], Any]
    confirm: Callable[[Pod], Any]
    record: Callable[[Pod, str, str, str, str], None]
    tidy: Callable[[ObservedPod, Pod | None], None]
    host: Callable[[], HostFacts]
    node: Callable[[], NodeFacts]
    network: ClusterNetwork
    network_ready: Callable[[], str | None]


class PodWorker:
    """Runs one pod.

    Args:
        uid: of the pod; a pod of the same name with another uid is another pod.
        pod: its object; None for leftovers of a pod whose object is gone.
    """

    def __init__(self, uid: str, pod: Pod | None, around: Surroundings) -> None:
        self.uid = uid
        self.pod = pod
        self.object_exists = pod is not None
        self._around = around
        self._memory = Memory()
        self._wake = asyncio.Event()
        self.observed = ObservedPod(uid)
        self._gone = False
        self._failures = 0
        self._stopping: set[str] = set()
        self._logger = _LOGGER.bind(uid=uid, pod=full_name(pod) if pod else "")

    def wake(self) -> None:
        """Something has changed."""
        self._wake.set()

    def update(self, pod: Pod) -> None:
        """The object has changed."""
        self.pod = pod
        self.wake()

    def forget_object(self) -> None:
        """The object is gone: what still runs must end."""
        self.object_exists = False
        self.wake()

    @property
    def ending(self) -> bool:
        return not self.object_exists or bool(self.pod and self.pod.metadata.HasField("deletionTimestamp"))

    async def run(self) -> None:
        """Works until nothing of the pod is left here."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                try:
                    wake_at_s = await self._step(group)
                    if wake_at_s is None and self._gone:
                        return
                    self._failures = 0
                except RuntimeFailure as failure:
                    wake_at_s = self._after_failure(failure.message)
                except (VolumeError, OSError) as error:
                    wake_at_s = self._after_failure(str(error))
                await self._sleep_until(wake_at_s)

    def _after_failure(self, text: str) -> float:
        delay_s = _ERROR_BACKOFF.delay_s(self._failures, ids.jitter())
        self._failures += 1
        self._logger.warning("pod step failed", error=text, retry_in_s=round(delay_s, 2))
        return clock.now_s() + delay_s

    async def _sleep_until(self, wake_at_s: float | None) -> None:
        due_s = clock.now_s() + _RESYNC_S * (1 + 0.5 * ids.jitter())
        if wake_at_s is not None:
            due_s = min(due_s, wake_at_s)
        timer = clock.call_at(due_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    async def _step(self, group: asyncio.TaskGroup) -> float | None:
        """One look at the pod; answers when to look again at the latest."""
        observed = await self._observe()
        if self.ending:
            return await self._end(group, observed)
        pod = self.pod
        assert pod is not None
        plan = podplan.plan(pod, observed, self._memory, clock.now_s())
        self._clear_waiting(observed)
        await self._report(observed)
        if not plan.actions:
            if not plan.finished:
                await self._refresh_volumes(pod)
            return plan.wake_at_s
        retry_at_s = await self._act(plan.actions, observed)
        observed = await self._observe()
        self._clear_waiting(observed)
        await self._report(observed)
        wakes = [due_s for due_s in (plan.wake_at_s, retry_at_s) if due_s is not None]
        if all(isinstance(action, Hold) for action in plan.actions):
            return min(wakes, default=None)
        return min([*wakes, clock.now_s()]) if retry_at_s is None else min(wakes)

    async def _observe(self) -> ObservedPod:
        self.observed = await self._around.runtime.pod(self.uid)
        return self.observed

    # The end of a pod.

    async def _end(self, group: asyncio.TaskGroup, observed: ObservedPod) -> float | None:
        plan = podplan.plan_termination(observed, self._memory, grace_s=self._grace_s())
        if self.object_exists:
            await self._report(observed, ending=True)
        if not plan.finished:
            await self._wind_down(group, plan.actions)
            return clock.now_s() + 1.0 if self._stopping else clock.now_s()
        if self.object_exists:
            pod = self.pod
            assert pod is not None
            self._around.volumes.tear_down(self.uid)
            await self._around.confirm(pod)
            # The watch will say that the object is gone; until then look now and then.
            return clock.now_s() + 5.0
        for action in podplan.plan_removal(observed).actions:
            await self._execute(action, observed)
        self._around.volumes.tear_down(self.uid)
        self._around.tidy(observed, self.pod)
        self._around.images.forget(self.uid)
        self._gone = True
        return None

    def _grace_s(self) -> float:
        return grace_s(self.pod) if self.pod is not None else 30.0

    async def _wind_down(self, group: asyncio.TaskGroup, actions: tuple[Action, ...]) -> None:
        """Stops run side by side and in the background: a shorter grace may arrive meanwhile."""
        stops = [action for action in actions if isinstance(action, StopContainer)]
        for stop in stops:
            key = f"{stop.container_id}/{stop.grace_s:g}"
            if key in self._stopping:
                continue
            self._say_killing(stop)
            self._stopping.add(key)
            group.create_task(self._stop(stop, key), name=f"stop {stop.name}")
        if stops:
            return
        for action in actions:
            await self._execute(action, ObservedPod(self.uid))

    async def _stop(self, action: StopContainer, key: str) -> None:
        try:
            await self._around.runtime.stop_container(action.container_id, action.grace_s)
        except RuntimeFailure as failure:
            self._logger.warning("stop failed", container=action.name, error=failure.message)
            await clock.sleep(1.0)
        finally:
            self._stopping.discard(key)
            self.wake()

    def _say_killing(self, action: StopContainer) -> None:
        if action.message is None or action.container_id in self._memory.killing:
            return
        self._memory.killing.add(action.container_id)
        self._record("Normal", "Killing", action.message, f"spec.containers{{{action.name}}}")

    # Acting.

    async def _act(self, actions: tuple[Action, ...], observed: ObservedPod) -> float | None:
        """Carries out a live pod's actions; answers when to try again what could not be done."""
        retries = [await self._execute(action, observed) for action in actions]
        return min((due_s for due_s in retries if due_s is not None), default=None)

    async def _execute(self, action: Action, observed: ObservedPod) -> float | None:
        runtime = self._around.runtime
        match action:
            case StartSandbox(attempt):
                return await self._start_sandbox(attempt)
            case StartContainer():
                return await self._start_container(action, observed)
            case StopContainer():
                self._say_killing(action)
                await runtime.stop_container(action.container_id, action.grace_s)
            case StopSandbox(sandbox_id):
                await runtime.stop_sandbox(sandbox_id)
            case RemoveSandbox(sandbox_id):
                await runtime.remove_sandbox(sandbox_id)
            case RemoveContainer(container_id):
                await runtime.remove_container(container_id)
            case Hold(name, waiting, event):
                fresh = self._memory.waiting.get(name) != waiting
                self._memory.waiting[name] = waiting
                if event is not None and fresh:
                    self._record("Warning", "BackOff", event, f"spec.containers{{{name}}}")
            case Announce(type_, reason, message):
                self._record(type_, reason, message)
            case _:
                assert_never(action)
        return None

    async def _start_sandbox(self, attempt: int) -> float | None:
        pod = self.pod
        assert pod is not None
        problem = None if pod.spec.hostNetwork else self._around.network_ready()
        if problem is not None:
            self._record("Warning", "NetworkNotReady", f"network is not ready: {problem}")
            return clock.now_s() + 1.0
        try:
            await self._around.volumes.set_up(pod, self._around.lookup)
        except VolumeError as error:
            self._record("Warning", "FailedMount", str(error))
            return self._after_failure(str(error))
        spec = sandbox_spec(pod, attempt, self._around.network)
        try:
            async with self._around.starts:
                await self._around.runtime.run_sandbox(spec)
        except RuntimeFailure as failure:
            text = f"Failed to create pod sandbox: rpc error: code = {failure.code} desc = {failure.message}"
            self._record("Warning", "FailedCreatePodSandBox", text)
            return self._after_failure(failure.message)
        return None

    async def _start_container(self, action: StartContainer, observed: ObservedPod) -> float | None:
        pod = self.pod
        assert pod is not None
        container = find_container(pod, action.name)
        assert container is not None
        group = "initContainers" if container in list(pod.spec.initContainers) else "containers"
        path = f"spec.{group}{{{action.name}}}"

        def announce(type_: str, reason: str, message: str) -> None:
            self._record(type_, reason, message, path)

        try:
            image = await self._around.images.ensure(
                self.uid, container.image, container.imagePullPolicy, announce
            )
            spec = await self._container_spec(pod, container, action.attempt, observed)
        except PullError as error:
            self._memory.waiting[action.name] = Waiting(error.reason, error.message)
            return error.retry_at_s
        except BuildError as error:
            announce("Warning", "Failed", f"Error: {error}")
            self._memory.waiting[action.name] = Waiting("CreateContainerConfigError", str(error))
            return clock.now_s() + 10.0
        del image
        return await self._create_and_start(action, spec, observed, announce)

    async def _container_spec(self, pod: Pod, container: Any, attempt: int, observed: ObservedPod) -> Any:
        around = self._around
        host = around.host()
        sandbox = observed.sandbox
        addresses = (host.host_ip,) if pod.spec.hostNetwork else (sandbox.ips if sandbox else ())
        env = await container_env(pod, container, host, addresses, around.lookup)
        paths = await around.volumes.set_up(pod, around.lookup)
        mounts = mount_specs(container, paths)
        return container_spec(pod, container, attempt=attempt, env=env, mounts=mounts, host=host)

    async def _create_and_start(
        self,
        action: StartContainer,
        spec: Any,
        observed: ObservedPod,
        announce: Callable[[str, str, str], None],
    ) -> float | None:
        pod, runtime = self.pod, self._around.runtime
        assert pod is not None
        attempt = observed.sandbox.attempt if observed.sandbox else 0
        sandbox = sandbox_spec(pod, attempt, self._around.network)
        async with self._around.starts:
            try:
                container_id = await runtime.create_container(action.sandbox_id, spec, sandbox)
            except RuntimeFailure as failure:
                announce("Warning", "Failed", f"Error: {failure.message}")
                self._memory.waiting[action.name] = Waiting("CreateContainerError", failure.message)
                return self._after_failure(failure.message)
            announce("Normal", "Created", "Container created")
            if action.backoff is not None:
                self._memory.restarts[action.name] = action.backoff
            try:
                await runtime.start_container(container_id)
            except RuntimeFailure as failure:
                announce("Warning", "Failed", f"Error: {failure.message}")
                self._memory.waiting[action.name] = Waiting("RunContainerError", failure.message)
                return clock.now_s() + 1.0
        announce("Normal", "Started", "Container started")
        self._memory.waiting.pop(action.name, None)
        return None

    async def _refresh_volumes(self, pod: Pod) -> None:
        try:
            await self._around.volumes.set_up(pod, self._around.lookup)
        except VolumeError as error:
            # The pod runs on with what it has, as upstream's does.
            self._logger.debug("volume not refreshed", error=str(error))

    # Reporting.

    def _clear_waiting(self, observed: ObservedPod) -> None:
        for name in list(self._memory.waiting):
            made = observed.of(name)
            if made and made[0].state == "running":
                del self._memory.waiting[name]

    async def _report(self, observed: ObservedPod, *, ending: bool = False) -> None:
        pod = self.pod
        if pod is None or not self.object_exists:
            return
        status = pod_status(pod, observed, self._memory, self._around.node(), clock.now_s(), ending=ending)
        await self._around.publish(pod, status)

    def _record(self, type_: str, reason: str, message: str, path: str = "") -> None:
        if self.pod is not None:
            self._around.record(self.pod, type_, reason, message, path)
