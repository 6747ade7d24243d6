"""A whole cluster in one process: the real API server over the memory store, the real scheduler,
controllers and kubelets with the hollow runtime, joined by in-process transports.

On the virtual loop 300 s pass in a millisecond and the same seed gives the same history. Use
`run_world(seed, scenario)`; a scenario is `async (world) -> None`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from apiserver.core import ApiCore
from apiserver.store.memory import MemoryStore
from controller_manager.main import Manager
from controller_manager.table import controllers
from kubelet.handlers import HollowHandlers
from kubelet.node import Machine
from kubelet.nodeagent import NodeAgent
from kubelet.podbuild import ClusterNetwork
from kubelet.runtime.hollow import Delays, HollowRuntime, Stage
from kubelet.shell import Kubelet
from kubelet.volumes import NoVolumes, Volumes
from podyard.api import errors, resources
from podyard.api.types import M, Message, Namespace, Node, Pod, ServiceAccount
from podyard.base import clock, ids
from podyard.base.run import Background
from podyard.client.client import Client
from podyard.client.recorder import Recorder
from podyard.testing.faults import Link
from podyard.testing.history import History, kinds
from podyard.testing.invariants import Invariants, never_back
from podyard.testing.loop import VirtualLoop
from scheduler.shell import Scheduler

T = TypeVar("T")

# Conditions that look at what no history shows, such as a runtime, are asked again so soon.
_LOOK_S = 0.5

_MACHINE = Machine(
    cpus=4,
    memory_bytes=8 << 30,
    disk_bytes=100 << 30,
    machine_id="hollow",
    system_uuid="hollow",
    boot_id="hollow",
    kernel="hollow",
    os_image="hollow",
    architecture="amd64",
)


SCHEDULER = "scheduler"
CONTROLLERS = "controllers"


@dataclass(slots=True)
class _Part:
    run: Callable[[], Coroutine[Any, Any, None]]
    task: asyncio.Task[None] | None = None


class World:
    """One cluster.

    Its parts (`SCHEDULER`, `CONTROLLERS` and each node's name) can be killed and started again, and
    each has a link to the API server that can be cut.

    Args:
        nodes: how many hollow nodes.
        stages: image -> behaviour of its containers.
        delays: how long the nodes' runtimes take.
        volumes: makes what the kubelets keep their pods' volumes with.
    """

    def __init__(
        self,
        *,
        nodes: int = 2,
        stages: Mapping[str, Stage] | None = None,
        delays: Delays = Delays(),
        volumes: Callable[[], Volumes] = NoVolumes,
        ca_pem: str = "simulated",
        cluster_cidr: str = "10.244.0.0/16",
    ) -> None:
        self.history = History()
        self.invariants = Invariants()
        self.core = ApiCore(MemoryStore())
        self.client = self._client("kubernetes-admin", "system:masters")
        self.runtimes: dict[str, HollowRuntime] = {}
        self.links: dict[str, Link] = {}
        self._parts: dict[str, _Part] = {}
        self._handlers: list[Callable[[float, str, Message], None]] = []
        self._looking: list[asyncio.Event] = []  # one for each condition that is waited for
        self._background: Background | None = None
        self._node_count = nodes
        self._stages = dict(stages or {})
        self._delays = delays
        self._volumes = volumes
        self._ca_pem = ca_pem
        self._cluster_cidr = cluster_cidr

    def _client(self, user: str, *groups: str, part: str = "") -> Client:
        gate = self.links.setdefault(part, Link()).gate if part else None
        return Client(self.core.transport(user, *groups, gate=gate), field_manager=user)

    async def start(self, background: Background) -> None:
        """Starts every part and waits until the nodes are ready and pods may be made."""
        self._background = background
        self.core.start(background)
        await self.until(lambda: self.core.bootstrap.done, "system objects")
        for row in kinds():
            background.start(self._record(row), name=f"history {row.plural}")
        self._begin(CONTROLLERS, self._run_controllers)
        self._begin(SCHEDULER, self._run_scheduler)
        for number in range(1, self._node_count + 1):
            self.start_node(f"node-{number}")
        await self.until_async(self._nodes_ready, "nodes")
        await self.until_async(self._accounts_made, "default service accounts")

    # Parts.

    def _begin(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._parts[name] = _Part(run)
        self.restart(name)

    @property
    def parts(self) -> list[str]:
        """Names of all parts."""
        return sorted(self._parts)

    async def kill(self, name: str) -> None:
        """Ends a part wherever it is; what it knew is lost. Containers of a node run on."""
        part = self._parts[name]
        if part.task is not None:
            self.history.note(clock.now_s(), f"killed {name}")
            part.task.cancel()
            await asyncio.wait({part.task})
            part.task = None

    def restart(self, name: str) -> None:
        """Starts a part that does not run."""
        part = self._parts[name]
        assert self._background is not None
        if part.task is None:
            self.history.note(clock.now_s(), f"started {name}")
            part.task = self._background.start(part.run(), name=name)

    async def _run_scheduler(self) -> None:
        client = self._client("system:kube-scheduler", part=SCHEDULER)
        recorder = Recorder(client, "default-scheduler")
        scheduler = Scheduler(client, recorder)
        for informer in scheduler.informers:
            never_back(informer)
        async with Background() as background:
            background.start(recorder.run(), name="scheduler events")
            background.start(scheduler.informers.run(), name="scheduler informers")
            await scheduler.run()

    async def _run_controllers(self) -> None:
        client = self._client("system:kube-controller-manager", part=CONTROLLERS)
        recorder = Recorder(client, "kube-controller-manager")
        specs = controllers(cluster_cidr=self._cluster_cidr, ca_pem=self._ca_pem)
        manager = Manager(specs, client, recorder)
        for informer in manager.informers:
            never_back(informer)
        async with Background() as background:
            background.start(recorder.run(), name="controller events")
            background.start(manager.informers.run(), name="controller informers")
            await manager.run()

    def start_node(self, name: str) -> None:
        """Adds a node: a kubelet with a hollow runtime."""
        self.runtimes[name] = HollowRuntime(self._stages, self._delays)
        address = f"192.0.2.{len(self.runtimes)}"
        self._begin(name, lambda: self._run_kubelet(name, address))

    async def _run_kubelet(self, name: str, address: str) -> None:
        client = self._client(f"system:node:{name}", "system:nodes", part=name)
        runtime = self.runtimes[name]
        recorder = Recorder(client, "kubelet", name)
        kubelet = Kubelet(
            name,
            client,
            runtime,
            recorder,
            volumes=self._volumes(),
            network=ClusterNetwork(),
            handlers=HollowHandlers(runtime),
        )
        never_back(kubelet.pods)
        agent = NodeAgent(
            kubelet, client, runtime, recorder, _MACHINE, address=address, port=10250, labels={}
        )
        async with Background() as background:
            background.start(recorder.run(), name=f"{name} events")
            background.start(kubelet.run(), name=f"{name} kubelet")
            await agent.run()

    async def _nodes_ready(self) -> bool:
        listed = await self.client.list(Node)
        ready = [node for node in listed.items if _is_ready(node) and not node.spec.taints]
        return len(ready) == self._node_count

    async def _accounts_made(self) -> bool:
        namespaces = await self.client.list(Namespace)
        accounts = await self.client.list(ServiceAccount, field_selector="metadata.name=default")
        return len(accounts.items) == len(namespaces.items)

    async def _record(self, row: resources.Resource) -> None:
        async for batch in self.client.watch(row.message, send_initial_events=True):
            for event in batch.events:
                if event.type != "BOOKMARK":
                    now_s = clock.now_s()
                    self.history.change(now_s, event.type, row.kind, event.object)
                    self.invariants.change(event.type, event.object)
                    for handler in self._handlers:
                        handler(now_s, event.type, event.object)
            for looking in self._looking:
                looking.set()

    def on_change(self, handler: Callable[[float, str, Message], None]) -> None:
        """Calls `handler(now_s, type, object)` with each change of an object, in the order of the history."""
        self._handlers.append(handler)

    # What scenarios ask.

    async def until(self, condition: Callable[[], bool], what: str, timeout_s: float = 120.0) -> None:
        """Waits in cluster time until a condition holds.

        Raises:
            AssertionError: it did not in time.
        """

        async def check() -> bool:
            return condition()

        await self.until_async(check, what, timeout_s)

    async def until_async(
        self, condition: Callable[[], Awaitable[bool]], what: str, timeout_s: float = 120.0
    ) -> None:
        """As `until`, for a condition that asks the API: asked at each change, and now and then."""
        end_s = clock.now_s() + timeout_s
        looking = asyncio.Event()
        self._looking.append(looking)
        try:
            while not await condition():
                assert clock.now_s() < end_s, f"{what}: not within {timeout_s:g} s\n{self.history}"
                await clock.wait(looking, clock.now_s() + _LOOK_S)
                looking.clear()
        finally:
            self._looking.remove(looking)

    async def until_object(
        self,
        kind: type[M],
        name: str,
        condition: Callable[[M], bool],
        namespace: str = "default",
        timeout_s: float = 120.0,
    ) -> M:
        """Waits until an object is as it should be; answers it."""
        found: list[M] = []

        async def check() -> bool:
            try:
                obj = await self.client.get(kind, name, namespace)
            except errors.NotFound:
                return False
            found[:] = [obj]
            return condition(obj)

        await self.until_async(check, f"{kind.DESCRIPTOR.name} {name}", timeout_s)
        return found[0]

    async def until_gone(
        self, kind: type[M], name: str, namespace: str = "default", timeout_s: float = 120.0
    ) -> None:
        """Waits until no object of that name exists."""

        async def check() -> bool:
            listed = await self.client.list(kind, namespace, field_selector=f"metadata.name={name}")
            return not listed.items

        await self.until_async(check, f"{kind.DESCRIPTOR.name} {name} gone", timeout_s)


def _is_ready(node: Node) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)


def simple_pod(name: str, image: str = "nginx", **spec: Any) -> Pod:
    """A pod with one container of the pod's name."""
    return Pod(
        metadata={"name": name, "namespace": "default"},
        spec={"containers": [{"name": name, "image": image}], **spec},
    )


def run_world(seed: int, scenario: Callable[[World], Awaitable[T]], **arguments: Any) -> tuple[T, History]:
    """Runs a scenario in a world of its own on the virtual loop.

    Returns:
        What the scenario answers, and the history.
    """
    ids.seed(seed)

    async def main() -> tuple[T, History]:
        world = World(**arguments)
        async with Background() as background:
            await world.start(background)
            result = await scenario(world)
        await world.core.close()
        return result, world.history

    try:
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed)) as runner:
            return runner.run(main())
    finally:
        ids.seed(None)
