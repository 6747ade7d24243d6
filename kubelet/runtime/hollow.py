"""A runtime in memory: pods that do nothing but live, so that one process can be a thousand nodes.

What a container does is *staged data*: how long pull, sandbox and start take, and how a container
ends, chosen by image name. The rest (attempts, states, addresses, events, errors for unknown ids)
follows the real runtime, and the same suite checks both.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kubelet.runtime.base import (
    CREATED,
    EXITED,
    RUNNING,
    ContainerSpec,
    ImageInfo,
    ObservedPod,
    RuntimeContainer,
    RuntimeFailure,
    RuntimeStatus,
    Sandbox,
    SandboxSpec,
    StreamOptions,
)
from podyard.base import clock, ids

_EVENT_BOUND = 1000


@dataclass(frozen=True, slots=True)
class Stage:
    """How containers of an image behave.

    Attributes:
        runs_s: how long they run; None for ever.
        exit_code: with which they end by themselves.
        stop_s: how long after TERM they end; longer than the grace means KILL (137).
        pull_error: refuse the pull with this text.
        exec_code: with which every command in it ends.
        answers_from_s: how long after its start it begins to answer probes.
        answers_until_s: how long after its start it no longer does; None for never.
    """

    runs_s: float | None = None
    exit_code: int = 0
    stop_s: float = 0.05
    pull_error: str = ""
    exec_code: int = 0
    answers_from_s: float = 0.0
    answers_until_s: float | None = None


@dataclass(frozen=True, slots=True)
class Delays:
    """How long the runtime takes, in cluster seconds."""

    pull_s: float = 0.5
    sandbox_s: float = 0.2
    start_s: float = 0.1


class HollowRuntime:
    """Implements `Runtime`.

    Args:
        stages: image reference (as in the pod's spec, or normalized) -> behaviour.
        cidr: of this node's pods, until `set_pod_cidr`.
    """

    def __init__(
        self,
        stages: Mapping[str, Stage] | None = None,
        delays: Delays = Delays(),
        *,
        cidr: str = "",
        images: Sequence[str] = (),
    ) -> None:
        self._stages = dict(stages or {})
        self._delays = delays
        self._sandboxes: dict[str, Sandbox] = {}
        self._containers: dict[str, RuntimeContainer] = {}
        self._images = set(images)
        self._network = ipaddress.ip_network(cidr) if cidr else None
        self._addresses: set[str] = set()
        self._listeners: list[asyncio.Queue[str]] = []
        self._timers: dict[str, clock.TimerHandle] = {}
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}

    async def status(self) -> RuntimeStatus:
        network = self._network is not None
        return RuntimeStatus(
            ready=True,
            network_ready=network,
            reason="" if network else "NetworkPluginNotReady",
            message="" if network else "Network plugin returns error: cni plugin not initialized",
            name="hollow",
            version="1.0",
        )

    async def pods(self) -> list[ObservedPod]:
        uids = dict.fromkeys(
            [s.pod_uid for s in self._sandboxes.values()] + [c.pod_uid for c in self._containers.values()]
        )
        return [self._observed(uid) for uid in uids]

    async def pod(self, uid: str) -> ObservedPod:
        return self._observed(uid)

    def _observed(self, uid: str) -> ObservedPod:
        own = [s for s in self._sandboxes.values() if s.pod_uid == uid]
        own.sort(key=lambda s: (-s.created_at_s, -s.attempt))
        made = [c for c in self._containers.values() if c.pod_uid == uid]
        made.sort(key=lambda c: (-c.attempt, -c.created_at_s))
        name, namespace = (own[0].pod_name, own[0].pod_namespace) if own else ("", "")
        return ObservedPod(uid, name, namespace, tuple(own), tuple(made))

    async def run_sandbox(self, spec: SandboxSpec) -> str:
        await clock.sleep(self._delays.sandbox_s)
        for sandbox in self._sandboxes.values():
            if (sandbox.pod_uid, sandbox.attempt) == (spec.pod_uid, spec.attempt):
                raise RuntimeFailure(
                    f'failed to reserve sandbox name "{spec.pod_name}_{spec.attempt}": it is reserved',
                    "UNKNOWN",
                )
        address = () if spec.host_network else (self._take_address(),)
        sandbox = Sandbox(
            id=ids.hex_id(64),
            pod_uid=spec.pod_uid,
            pod_name=spec.pod_name,
            pod_namespace=spec.pod_namespace,
            attempt=spec.attempt,
            ready=True,
            created_at_s=clock.now_s(),
            ips=address,
        )
        self._sandboxes[sandbox.id] = sandbox
        self._notify(spec.pod_uid)
        return sandbox.id

    def _take_address(self) -> str:
        if self._network is None:
            raise RuntimeFailure("cni plugin not initialized")
        for host in list(self._network.hosts())[1:]:
            if str(host) not in self._addresses:
                self._addresses.add(str(host))
                return str(host)
        raise RuntimeFailure("no IP addresses available in range set")

    async def stop_sandbox(self, sandbox_id: str) -> None:
        sandbox = self._sandboxes.get(sandbox_id)
        if sandbox is None or not (sandbox.ready or sandbox.ips):
            return  # stopped already: that is no event, else who stops it at each event never rests
        for container in [c for c in self._containers.values() if c.sandbox_id == sandbox_id]:
            if container.state == RUNNING:
                self._finish(container.id, 137, "Error")
        self._addresses.difference_update(sandbox.ips)
        self._sandboxes[sandbox_id] = replace(sandbox, ready=False, ips=())
        self._notify(sandbox.pod_uid)

    async def remove_sandbox(self, sandbox_id: str) -> None:
        await self.stop_sandbox(sandbox_id)
        for container_id in [c.id for c in self._containers.values() if c.sandbox_id == sandbox_id]:
            await self.remove_container(container_id)
        sandbox = self._sandboxes.pop(sandbox_id, None)
        if sandbox is not None:
            self._notify(sandbox.pod_uid)

    async def create_container(self, sandbox_id: str, spec: ContainerSpec, sandbox: SandboxSpec) -> str:
        present = self._sandboxes.get(sandbox_id)
        if present is None:
            raise RuntimeFailure(f'failed to find sandbox id "{sandbox_id}": not found', "NOT_FOUND")
        for other in self._containers.values():
            if (other.sandbox_id, other.name, other.attempt) == (sandbox_id, spec.name, spec.attempt):
                raise RuntimeFailure(f'failed to reserve container name "{spec.name}_{spec.attempt}"')
        container = RuntimeContainer(
            id=ids.hex_id(64),
            sandbox_id=sandbox_id,
            pod_uid=present.pod_uid,
            name=spec.name,
            attempt=spec.attempt,
            state=CREATED,
            created_at_s=clock.now_s(),
            image=spec.image,
            image_id=_digest(spec.image),
            hash=spec.hash,
        )
        self._containers[container.id] = container
        self._notify(present.pod_uid)
        return container.id

    async def start_container(self, container_id: str) -> None:
        self._known(container_id)
        await clock.sleep(self._delays.start_s)
        container = self._known(container_id)
        if container.state != CREATED:
            raise RuntimeFailure(f"container {container_id} is in {container.state} state")
        self._containers[container_id] = replace(container, state=RUNNING, started_at_s=clock.now_s())
        stage = self._stage(container.image)
        if stage.runs_s is not None:
            due_s = clock.now_s() + stage.runs_s
            self._timers[container_id] = clock.call_at(due_s, self._finish, container_id, stage.exit_code, "")
        self._notify(container.pod_uid)

    def _known(self, container_id: str) -> RuntimeContainer:
        container = self._containers.get(container_id)
        if container is None:
            raise RuntimeFailure(
                f'an error occurred when try to find container "{container_id}": not found', "NOT_FOUND"
            )
        return container

    def _finish(self, container_id: str, exit_code: int, reason: str) -> None:
        container = self._containers.get(container_id)
        if container is None or container.state != RUNNING:
            return
        timer = self._timers.pop(container_id, None)
        if timer is not None:
            timer.cancel()
        self._containers[container_id] = replace(
            container,
            state=EXITED,
            finished_at_s=clock.now_s(),
            exit_code=exit_code,
            reason=reason or ("Completed" if exit_code == 0 else "Error"),
        )
        for future in self._waiters.pop(container_id, []):
            if not future.done():
                future.set_result(None)
        self._notify(container.pod_uid)

    def fail_container(self, container_id: str, exit_code: int = 1) -> None:
        """Ends a running container, as a fault of a simulation."""
        self._finish(container_id, exit_code, "Error")

    def lose_power(self) -> None:
        """What a pulled plug does: nothing runs any more, and nobody knows how it ended."""
        for container_id in list(self._containers):
            self._finish(container_id, 255, "Unknown")
        for sandbox_id, sandbox in self._sandboxes.items():
            self._sandboxes[sandbox_id] = replace(sandbox, ready=False, ips=())
        self._addresses.clear()

    async def stop_container(self, container_id: str, grace_s: float) -> None:
        container = self._containers.get(container_id)
        if container is None or container.state != RUNNING:
            return
        stop_s = self._stage(container.image).stop_s
        due_s = clock.now_s() + min(stop_s, grace_s)
        code = 0 if stop_s <= grace_s else 137
        timer = clock.call_at(due_s, self._finish, container_id, code, "")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(container_id, []).append(future)
        try:
            await future
        finally:
            timer.cancel()

    async def remove_container(self, container_id: str) -> None:
        self._finish(container_id, 137, "Error")
        container = self._containers.pop(container_id, None)
        if container is not None:
            self._notify(container.pod_uid)

    async def image(self, reference: str) -> ImageInfo | None:
        return self._info(reference) if reference in self._images else None

    async def images(self) -> Sequence[ImageInfo]:
        return [self._info(reference) for reference in sorted(self._images)]

    def _info(self, reference: str) -> ImageInfo:
        return ImageInfo(_digest(reference), (reference,), 1_000_000)

    async def pull(self, reference: str) -> str:
        await clock.sleep(self._delays.pull_s)
        stage = self._stage(reference)
        if stage.pull_error:
            raise RuntimeFailure(stage.pull_error, "NOT_FOUND")
        self._images.add(reference)
        return self._info(reference).id

    def _stage(self, image: str) -> Stage:
        short = image.removeprefix("docker.io/library/").removesuffix(":latest")
        return self._stages.get(image) or self._stages.get(short) or Stage()

    async def set_pod_cidr(self, cidr: str) -> None:
        self._network = ipaddress.ip_network(cidr)

    async def sweep(self) -> None:
        pass

    async def exec(self, container_id: str, command: Sequence[str], timeout_s: float) -> tuple[int, str]:
        container = self._known(container_id)
        if container.state != RUNNING:
            raise RuntimeFailure(f"container {container_id} is in {container.state} state")
        return self._stage(container.image).exec_code, ""

    async def exec_url(self, container_id: str, command: Sequence[str], options: StreamOptions) -> str:
        self._known(container_id)
        raise RuntimeFailure("a hollow container runs no commands", "UNIMPLEMENTED")

    async def attach_url(self, container_id: str, options: StreamOptions) -> str:
        self._known(container_id)
        raise RuntimeFailure("a hollow container has no process to attach to", "UNIMPLEMENTED")

    async def forward_url(self, sandbox_id: str, ports: Sequence[int]) -> str:
        raise RuntimeFailure("a hollow pod listens on no port", "UNIMPLEMENTED")

    def answers(self, container_id: str) -> bool:
        """Whether a container answers a probe now."""
        container = self._containers.get(container_id)
        if container is None or container.state != RUNNING:
            return False
        stage = self._stage(container.image)
        age_s = clock.now_s() - container.started_at_s
        if age_s < stage.answers_from_s or stage.exec_code != 0:
            return False
        return stage.answers_until_s is None or age_s < stage.answers_until_s

    async def events(self) -> AsyncIterator[str]:
        queue: asyncio.Queue[str] = asyncio.Queue(_EVENT_BOUND)
        self._listeners.append(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._listeners.remove(queue)

    def _notify(self, uid: str) -> None:
        for queue in self._listeners:
            if not queue.full():
                queue.put_nowait(uid)

    async def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()


def _digest(reference: str) -> str:
    return f"sha256:{hashlib.sha256(reference.encode()).hexdigest()}"
