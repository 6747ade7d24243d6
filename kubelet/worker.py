"""One pod's worker: look, plan, act, report; again when something changes.

The worker owns the pod from its first sight to the removal of the last trace on the node. It
holds no truth: after a restart of the kubelet a new worker finds the pod running and adopts it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, assert_never

from kubelet import podplan, podstatus
from kubelet.environment import container_env
from kubelet.hooks import Hooks
from kubelet.images import PullError
from kubelet.podbuild import (
    HOSTS_PATH,
    BuildError,
    container_spec,
    hosts_text,
    mount_specs,
    must_not_be_root,
    sandbox_spec,
    verify_not_root,
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
from kubelet.podspec import find_container, full_name, grace_s, same_but_status, spec_grace_s
from kubelet.podstatus import changes_at_s, pod_status
from kubelet.prober import PodProber
from kubelet.retries import Retries
from kubelet.runtime.base import EXITED, MountSpec, ObservedPod, RuntimeContainer, RuntimeFailure
from kubelet.serviceenv import service_env
from kubelet.statuses import StatusChannel
from kubelet.surroundings import Surroundings
from kubelet.volumes import VolumeError
from podyard.api.errors import ApiError
from podyard.api.types import Container, Pod, PodStatus, copy_of
from podyard.base import clock, ids, log
from podyard.base.backoff import Backoff
from podyard.base.run import Background

_LOGGER = log.get_logger("kubelet.worker")
# Upstream: syncFrequency; refreshes ConfigMap and Secret volumes.
_RESYNC_S = 60.0
# A pod that is woken often reads its volumes' sources no more often than this.
_VOLUMES_S = 10.0
# An object that does not go (it has finalizers, or the server is away) is asked to again.
_CONFIRM_BACKOFF = Backoff(base_s=2.0, cap_s=60.0)
_LOOK_AT_STOPS_S = 2.0
# Upstream: a pod always gets a second to end, and a leftover of an unknown pod gets no more.
_LEAST_GRACE_S = 1.0
_SANDBOX = "sandbox"


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
        self.observed = ObservedPod(uid)
        self._around = around
        self._memory = Memory()
        self._retries = Retries()
        self._wake = asyncio.Event()
        self._gone = False
        self._status: PodStatus | None = None
        self._reported: Pod | None = None
        self._channel = StatusChannel(around.statuses, self._settled)
        self._fresh: ObservedPod | None = None
        self._volumes_due_s = 0.0
        self._acting: asyncio.Task[float | None] | None = None
        self._stopping: set[str] = set()
        self._least_grace_s: float | None = None
        self._hooks = Hooks(around.handlers, self._record_container)
        self._prober: PodProber | None = None
        self._last_words: dict[str, str] = {}
        self._logger = _LOGGER.bind(uid=uid, pod=full_name(pod) if pod else "")

    def wake(self) -> None:
        """Something has changed."""
        self._wake.set()

    def update(self, pod: Pod) -> None:
        """The object has changed."""
        before, self.pod = self.pod, pod
        if before is not None and same_but_status(before, pod):
            if pod.status == self._status:
                self._reported = pod  # the echo of what this worker said
                return
        else:
            self._volumes_due_s = 0.0
        self._turn()

    def _settled(self) -> None:
        if self.ending:
            self.wake()  # the object may go now

    def forget_object(self) -> None:
        """The object is gone: what still runs must end."""
        self.object_exists = False
        self._turn()

    def _turn(self) -> None:
        if self.ending and self._acting is not None:
            # What is being started now (a long pull, perhaps) is not wanted any more.
            self._acting.cancel()
        self.wake()

    @property
    def ending(self) -> bool:
        return not self.object_exists or bool(self.pod and self.pod.metadata.HasField("deletionTimestamp"))

    async def run(self) -> None:
        """Works until nothing of the pod is left here."""
        async with Background() as background:
            background.start(self._channel.run(), name="status")
            self._prober = PodProber(
                self._around.handlers, background, self._memory.health, self.wake, self._record_container
            )
            while True:
                if self._wake.is_set():
                    self._fresh = None
                self._wake.clear()
                try:
                    wake_at_s = await self._step(background)
                    self._retries.worked("step")
                    if self._gone:
                        return
                except RuntimeFailure as failure:
                    wake_at_s = self._failed("step", failure.message, usual=failure.code == "UNAVAILABLE")
                except (VolumeError, OSError) as error:
                    wake_at_s = self._failed("step", str(error))
                await self._sleep_until(wake_at_s)

    def _failed(self, target: str, text: str, *, usual: bool = False) -> float:
        retry_at_s = self._retries.failed(target)
        retry_in_s = round(retry_at_s - clock.now_s(), 2)
        # A runtime that restarts is back within a second: not a line for each pod.
        say = self._logger.debug if usual and self._retries.failures(target) < 3 else self._logger.warning
        say("pod step failed", target=target, error=text, retry_in_s=retry_in_s)
        return retry_at_s

    async def _sleep_until(self, wake_at_s: float | None) -> None:
        due_s = clock.now_s() + _RESYNC_S * (1 + 0.5 * ids.jitter())
        if wake_at_s is not None:
            due_s = min(due_s, wake_at_s)
        await clock.wait(self._wake, due_s)

    async def _step(self, background: Background) -> float | None:
        """One look at the pod; answers when to look again at the latest."""
        observed, self._fresh = self._fresh or await self._observe(), None
        self._clear_waiting(observed)
        if self.ending:
            return await self._end(background, observed)
        pod = self._report(observed)
        assert pod is not None
        plan = podplan.plan(pod, observed, self._memory, clock.now_s())
        due_s = changes_at_s(pod, observed, clock.now_s())
        if due_s is not None:
            plan = replace(plan, wake_at_s=min(due_s, plan.wake_at_s or due_s))
        if plan.finished:
            await self._around.volumes.tear_down(self.uid)
            return plan.wake_at_s
        if not plan.actions:
            await self._refresh_volumes(pod)
            return plan.wake_at_s
        retry_at_s = await self._act(background, plan.actions, observed)
        if self.ending:
            return clock.now_s()
        after = await self._observe()
        self._clear_waiting(after)
        self._report(after)
        wakes = [due_s for due_s in (plan.wake_at_s, retry_at_s) if due_s is not None]
        if all(isinstance(action, Hold) for action in plan.actions):
            return min(wakes, default=None)
        if after == observed and retry_at_s is None:
            # All went well and nothing is different: not again at once, or this would never end.
            return self._failed("step", "what was done has changed nothing")
        if after == observed:
            return min(wakes)
        self._fresh = after
        return clock.now_s()

    async def _observe(self) -> ObservedPod:
        observed = await self._around.runtime.pod(self.uid)
        self.observed = replace(
            observed,
            containers=tuple([await self._with_last_words(container) for container in observed.containers]),
        )
        known = {container.id for container in observed.containers}
        self._last_words = {ident: text for ident, text in self._last_words.items() if ident in known}
        self._memory.killing &= known
        if self.pod is not None and self._prober is not None:
            self._prober.follow(self.pod, self.observed, self._address(self.observed), ending=self.ending)
        return self.observed

    async def _with_last_words(self, container: RuntimeContainer) -> RuntimeContainer:
        """A container that has ended, with its termination message: read once, for its file goes."""
        messages, pod = self._around.messages, self.pod
        if messages is None or pod is None or container.state != EXITED:
            return container
        if container.id not in self._last_words:
            known = podstatus.known_message(pod.status, container.id)
            wanted = find_container(pod, container.name)
            if not known and wanted is not None:
                known = await messages.read(pod, wanted, container)
            self._last_words[container.id] = known
        return replace(container, message=self._last_words[container.id] or container.message)

    # The end of a pod.

    async def _end(self, background: Background, observed: ObservedPod) -> float | None:
        grace_s = self._grace_s()
        plan = podplan.plan_termination(observed, self._memory, grace_s=grace_s)
        self._report(observed, ended=plan.finished)
        if not plan.finished:
            return await self._wind_down(background, plan.actions, observed)
        await self._around.volumes.tear_down(self.uid)
        if self.object_exists:
            return await self._give_up_object()
        for action in podplan.plan_removal(observed).actions:
            await self._execute(action, observed)
        await self._around.tidy(observed, self.pod)
        self._around.images.forget(self.uid)
        self._gone = True
        return None

    async def _give_up_object(self) -> float | None:
        """Nothing runs: the object may go, once it has said how the pod ended."""
        pod = self.pod
        assert pod is not None
        if not self._channel.settled:
            return None  # the channel wakes us
        held_until_s = self._retries.held_until_s("confirm")
        if held_until_s is not None:
            return held_until_s
        await self._around.confirm(pod)
        # The watch will say that the object is gone; until then look now and then.
        return self._retries.failed("confirm", _CONFIRM_BACKOFF)

    def _grace_s(self) -> float:
        """The grace to end with: it may become shorter meanwhile, never longer.

        Source: pod_workers.go calculateEffectiveGracePeriod.
        """
        if self.pod is None:
            return _LEAST_GRACE_S
        wanted_s = grace_s(self.pod)
        if self._least_grace_s is not None:
            wanted_s = min(wanted_s, self._least_grace_s)
        self._least_grace_s = wanted_s
        return max(wanted_s, _LEAST_GRACE_S)

    async def _wind_down(
        self, background: Background, actions: tuple[Action, ...], observed: ObservedPod
    ) -> float | None:
        """Stops run side by side and in the background: a shorter grace may arrive meanwhile."""
        stops = [action for action in actions if isinstance(action, StopContainer)]
        for stop in stops:
            key = f"{stop.container_id}/{stop.grace_s:g}"
            if key in self._stopping:
                continue
            self._say_killing(stop)
            self._stopping.add(key)
            background.start(self._stop(stop, key), name=f"stop {stop.name}")
        if stops:
            return clock.now_s() + _LOOK_AT_STOPS_S
        for action in actions:
            await self._execute(action, observed)
        after = await self._observe()
        if after == observed:
            return self._failed("step", "what was done has changed nothing")
        self._fresh = after
        return clock.now_s()

    async def _stop(self, action: StopContainer, key: str) -> None:
        try:
            await self._stop_container(action)
        except RuntimeFailure as failure:
            self._logger.warning("stop failed", container=action.name, error=failure.message)
            await clock.sleep(1.0)
        finally:
            self._stopping.discard(key)
            self.wake()

    async def _stop_container(self, action: StopContainer) -> None:
        grace_s = await self._hooks.before_stop(
            self.pod, action.name, action.container_id, self._address(self.observed), action.grace_s
        )
        await self._around.runtime.stop_container(action.container_id, grace_s)

    def _address(self, observed: ObservedPod) -> str:
        """Where handlers reach the pod."""
        sandbox = observed.sandbox
        return sandbox.ips[0] if sandbox is not None and sandbox.ips else self._around.host().host_ip

    def _say_killing(self, action: StopContainer) -> None:
        if action.message is None or action.container_id in self._memory.killing:
            return
        self._memory.killing.add(action.container_id)
        self._record("Normal", "Killing", action.message, f"spec.containers{{{action.name}}}")

    # Acting.

    async def _act(
        self, background: Background, actions: tuple[Action, ...], observed: ObservedPod
    ) -> float | None:
        """Carries out a live pod's actions; answers when to try again what could not be done.

        Given up as soon as the pod must end. What the runtime made nevertheless shows at the next look.
        """
        acting = background.start(self._carry_out(actions, observed), name="act")
        self._acting = acting
        try:
            await asyncio.wait({acting})
        finally:
            self._acting = None
            acting.cancel()
        return None if acting.cancelled() else acting.result()

    async def _carry_out(self, actions: tuple[Action, ...], observed: ObservedPod) -> float | None:
        retries: list[float | None] = []
        for action in actions:
            try:
                retries.append(await self._execute(action, observed))
            except RuntimeFailure as failure:
                # What follows would build on it.
                retries.append(self._failed(type(action).__name__, failure.message))
                break
            else:
                self._retries.worked(type(action).__name__)
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
                await self._stop_container(action)
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
        held_until_s = self._retries.held_until_s(_SANDBOX)
        if held_until_s is not None:
            return held_until_s
        pod = self.pod
        assert pod is not None
        problem = None if pod.spec.hostNetwork else self._around.network_ready()
        if problem is not None:
            self._record("Warning", "NetworkNotReady", f"network is not ready: {problem}")
            return self._retries.hold(_SANDBOX, clock.now_s() + 1.0)
        try:
            await self._around.volumes.set_up(pod, self._around.lookup)
        except VolumeError as error:
            self._record("Warning", "FailedMount", str(error))
            return self._failed(_SANDBOX, str(error))
        spec = sandbox_spec(pod, attempt, self._around.network)
        try:
            async with self._around.starts:
                await self._around.runtime.run_sandbox(spec)
        except RuntimeFailure as failure:
            code = "".join(part.capitalize() for part in failure.code.split("_"))
            text = f"Failed to create pod sandbox: rpc error: code = {code} desc = {failure.message}"
            self._record("Warning", "FailedCreatePodSandBox", text)
            return self._failed(_SANDBOX, failure.message)
        self._retries.worked(_SANDBOX)
        return None

    async def _start_container(self, action: StartContainer, observed: ObservedPod) -> float | None:
        target = f"container {action.name}"
        held_until_s = self._retries.held_until_s(target)
        if held_until_s is not None:
            return held_until_s
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
            await self._check_user(pod, container, image)
            spec = await self._container_spec(pod, container, action.attempt, observed)
        except PullError as error:
            self._memory.waiting[action.name] = Waiting(error.reason, error.message)
            return self._retries.hold(target, error.retry_at_s)
        except VolumeError as error:
            self._record("Warning", "FailedMount", str(error))
            return self._failed(target, str(error))
        except (BuildError, ApiError) as error:
            announce("Warning", "Failed", f"Error: {error}")
            self._memory.waiting[action.name] = Waiting("CreateContainerConfigError", str(error))
            return self._failed(target, str(error))
        retry_at_s = await self._create_and_start(action, spec, observed, announce)
        if retry_at_s is None:
            self._retries.worked(target)
        return retry_at_s

    async def _check_user(self, pod: Pod, container: Container, image: str) -> None:
        """Refuses to run as root what must not.

        Raises:
            BuildError: it would, or nobody can tell.
        """
        if must_not_be_root(pod, container):
            verify_not_root(pod, container, await self._around.runtime.image(image))

    async def _container_spec(self, pod: Pod, container: Any, attempt: int, observed: ObservedPod) -> Any:
        around = self._around
        host = around.host()
        sandbox = observed.sandbox
        addresses = (host.host_ip,) if pod.spec.hostNetwork else (sandbox.ips if sandbox else ())
        services = service_env(pod, await around.services())
        env = await container_env(pod, container, host, addresses, around.lookup, services=services)
        paths = await around.volumes.set_up(pod, around.lookup)
        mounts = [
            replace(mount, host_path=await around.volumes.sub_path(self.uid, mount.host_path, sub_path))
            if sub_path
            else mount
            for mount, sub_path in mount_specs(pod, container, paths, env)
        ]
        if all(mount.container_path.rstrip("/") != HOSTS_PATH for mount in mounts):
            domain = around.network.domain
            hosts = await around.volumes.hosts_file(
                self.uid, lambda own: hosts_text(pod, addresses, domain, own)
            )
            mounts.append(MountSpec(HOSTS_PATH, hosts))
        if around.messages is not None and container.terminationMessagePath:
            path = await around.messages.prepare(self.uid, container.name, attempt)
            mounts.append(MountSpec(container.terminationMessagePath, path))
        return container_spec(pod, container, attempt=attempt, env=env, mounts=tuple(mounts), host=host)

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
                return self._failed(f"container {action.name}", failure.message)
            announce("Normal", "Created", "Container created")
            if action.backoff is not None:
                self._memory.restarts[action.name] = action.backoff
            try:
                await runtime.start_container(container_id)
            except RuntimeFailure as failure:
                announce("Warning", "Failed", f"Error: {failure.message}")
                self._memory.waiting[action.name] = Waiting("RunContainerError", failure.message)
                return self._failed(f"container {action.name}", failure.message)
        announce("Normal", "Started", "Container started")
        self._memory.waiting.pop(action.name, None)
        return await self._post_start(pod, action, container_id, observed)

    async def _post_start(
        self, pod: Pod, action: StartContainer, container_id: str, observed: ObservedPod
    ) -> float | None:
        """Runs the container's postStart hook; one that fails ends it."""
        container = find_container(pod, action.name)
        assert container is not None
        error = await self._hooks.after_start(container, container_id, self._address(observed))
        if error is None:
            return None
        self._memory.waiting[action.name] = Waiting("PostStartHookError", error)
        kill = StopContainer(container_id, action.name, spec_grace_s(pod), "FailedPostStartHook")
        self._say_killing(kill)
        await self._stop_container(kill)
        return self._failed(f"container {action.name}", error)

    async def _refresh_volumes(self, pod: Pod) -> None:
        if clock.now_s() < self._volumes_due_s:
            return
        self._volumes_due_s = clock.now_s() + _VOLUMES_S
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

    def _report(self, observed: ObservedPod, *, ended: bool = False) -> Pod | None:
        """Makes the pod's status and sends it on its way; answers the pod with it."""
        pod = self.pod
        if pod is None or not self.object_exists:
            return None
        status = pod_status(
            pod,
            observed,
            self._memory,
            self._around.node(),
            clock.now_s(),
            previous=self._status,
            ended=ended,
        )
        # An object that changed is compared again: someone else may have written its status.
        if status != self._status or pod is not self._reported:
            self._status, self._reported = status, pod
            self._channel.offer(pod, status)
        seen = copy_of(pod)
        seen.status.CopyFrom(status)
        return seen

    def _record_container(self, type_: str, reason: str, message: str, container: str) -> None:
        self._record(type_, reason, message, f"spec.containers{{{container}}}")

    def _record(self, type_: str, reason: str, message: str, path: str = "") -> None:
        if self.pod is not None:
            self._around.record(self.pod, type_, reason, message, path)
