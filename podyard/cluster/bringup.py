"""`up` and `down`: look, plan, act, wait until it is ready.

The thin shell around `podyard.cluster.plan`. Interrupted at any point, the next `up` goes on from what is
there. All waits have deadlines; containers start two at a time, since more gains nothing on a small
machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence, Set
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TypeVar, assert_never

from podyard.base import clock
from podyard.cluster import ports as host_ports
from podyard.cluster import preflight, publishing, userconfig
from podyard.cluster.compose import FILES
from podyard.cluster.engine import Engine, EngineError
from podyard.cluster.enginehost import LOOPBACK
from podyard.cluster.errors import ClusterError, NotFoundError, NotReadyError, SpecError
from podyard.cluster.homes import require_home
from podyard.cluster.image import ensure_image, remove_superseded
from podyard.cluster.plan import (
    Connect,
    CreateContainer,
    CreateNetwork,
    CreateVolume,
    Observed,
    RemoveContainer,
    RemoveNetwork,
    StartContainer,
    Step,
    UnpauseContainer,
    as_if_on,
    etcd_members,
    free_subnets,
    on_another_image,
    phases,
    plan,
    resolve_nodes,
)
from podyard.cluster.progress import Progress
from podyard.cluster.rest import RestProbe, Unreachable
from podyard.cluster.roles import Container, containers, registry
from podyard.cluster.settings import Settings, registered_differently
from podyard.cluster.spec import (
    DEFAULT_NODES,
    REGISTRY_NAME,
    REGISTRY_PORT,
    ClusterSpec,
    HostPorts,
    Placement,
    Role,
    container_name,
)
from podyard.cluster.state import Busy, StateDirectory, engine_locks, locked
from podyard.cluster.wording import counted, named, podyard_on

T = TypeVar("T")

READY_DEADLINE_S = 120.0
_SIDE_BY_SIDE = 2
_REGISTRY_DEADLINE_S = 60.0
# No cluster can have this name.
_REGISTRY_LOCK = ".registry"
_CHOICES = 4
# The engine's words for a port or a subnet that something else has taken.
_LOST_SUBNET = "pool overlaps"
_LOST_CHOICE = ("port is already allocated", "address already in use", _LOST_SUBNET)
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class UpRequest:
    """What the user asked for. `nodes` None keeps what is there; `spec.nodes` is not looked at."""

    spec: ClusterSpec
    nodes: int | None = None
    rebuild: bool = False
    wait: bool = True
    ready_deadline_s: float = READY_DEADLINE_S


@dataclass(frozen=True, slots=True)
class UpResult:
    """What `up` did; no steps means that all was there."""

    spec: ClusterSpec
    placement: Placement
    steps: Sequence[Step]


async def up(engine: Engine, request: UpRequest, progress: Progress) -> UpResult:
    """Brings the cluster to what was asked for.

    Raises:
        PreflightError: the host cannot carry it.
        SpecError: fewer nodes than there are, or something else that a cluster that is there cannot become.
        NotReadyError: it was started, but did not become ready in time.
        EngineError: the engine refused something.
    """
    state = StateDirectory(request.spec.name)
    with state.locked():
        await require_home(engine, state)
        observed = await engine.observe(request.spec.name)
        _refuse_composed(request.spec.name, observed)
        spec = replace(
            request.spec,
            nodes=resolve_nodes(request.nodes, observed, meant=state.nodes(), default=DEFAULT_NODES),
        )
        _check_wish(spec, observed, state, progress)
        await _check_host(engine, spec, observed, progress)
        image_id = await ensure_image(engine, spec.image, progress, rebuild=request.rebuild)
        kept = [] if request.rebuild else on_another_image(observed, image_id)
        if kept:
            progress.note(
                f"{named(kept, 'container')} on an older {spec.image} than there is: left alone; "
                "`up --build` replaces what is older"
            )
        before = await _heartbeats(state, observed) if request.wait else {}
        placement, steps = await _reach(
            engine, spec, image_id, state, progress, replace_living=request.rebuild
        )
        if request.rebuild:
            await remove_superseded(engine)
    if request.wait:
        begun = {step.name for step in steps if isinstance(step, StartContainer | UnpauseContainer)}
        silent = {name: beat for name, beat in before.items() if name in begun}
        await _await_ready(engine, request, spec, placement, state, progress, silent)
    return UpResult(spec, placement, steps)


def _check_wish(spec: ClusterSpec, observed: Observed, state: StateDirectory, progress: Progress) -> None:
    """Whether the cluster that is there can become what is wished; says what stays as it is.

    Raises:
        SpecError: it can't.
    """
    publishing.require_nodes(spec.publish, spec.nodes)
    before = state.settings_told()
    there = etcd_members(observed)
    # What was told counts, for an `up` that was interrupted had made only some of them.
    members = max(there, before.etcd_members) if before is not None else there
    if there and members != spec.etcd_members:
        raise SpecError(
            f"the cluster has {counted(members, 'etcd member')}, and their number cannot change",
            hint=f"say {members} in a file for --config (controlPlane: {{etcd: {members}}}), "
            "or make it anew: podyard down, then up",
        )
    before = before or Settings()
    for role in (Role.SCHEDULER, Role.CONTROLLER_MANAGER):
        present = observed.count(role)
        if present > spec.count(role):
            raise SpecError(
                f"the cluster has {counted(present, 'container')} of the role {role} "
                "and `up` takes none away",
                hint=f"say {present}, or make it anew: podyard down, then up",
            )
    if there and before.toleration_s != spec.toleration_s:
        progress.note(
            f"pods that are there leave a lost node after {before.toleration_s} s as before, "
            f"new ones after {spec.toleration_s} s"
        )
    stay = registered_differently(before, Settings.of(spec), min(observed.count(Role.WORKER), spec.nodes))
    if stay:
        names = ", ".join(container_name(spec.name, Role.WORKER, index) for index in stay)
        progress.note(
            f"{names}: a node that is registered keeps its taints and labels; "
            "podyard kubectl taint nodes, and label nodes, change them"
        )


async def add_node(engine: Engine, name: str, progress: Progress) -> int:
    """The same as `up` with one node more; answers how many there are then."""
    count = (await engine.observe(name)).count(Role.WORKER) + 1
    spec = StateDirectory(name).settings().applied(ClusterSpec(name=name))
    await up(engine, UpRequest(spec, nodes=count), progress)
    return count


def _refuse_composed(name: str, observed: Observed) -> None:
    if any(container.role == FILES for container in observed.containers.values()):
        raise ClusterError(
            f"the cluster {name!r} was made by compose",
            hint=f"docker-compose -p {name} -f FILE up -d brings it up; its size is the file's",
        )


async def down(engine: Engine, name: str, progress: Progress) -> bool:
    """Removes all of a cluster, volumes and state too; the registry stays. False when there was none.

    Raises:
        ClusterError: the cluster lives on another engine.
    """
    state = StateDirectory(name)
    with state.locked():
        await require_home(engine, state)
        observed = await engine.observe(name)
        if not observed.exists and not state.path.exists():
            return False
        with progress.step(f"removing {counted(len(observed.containers), 'container')} of {name}"):
            await _side_by_side(engine.remove_container, observed.containers)
        with progress.step(f"removing {counted(len(observed.volumes), 'volume')} and the network"):
            await _side_by_side(engine.remove_volume, sorted(observed.volumes))
            if observed.network is not None:
                await engine.remove_network(name)
        for line in await asyncio.to_thread(userconfig.forget, state):
            progress.note(line)
        state.remove()
    return True


async def remove_registry(engine: Engine, progress: Progress) -> None:
    """Removes the host's registry with all that was pushed, unless a cluster is there that pulls from it.

    Raises:
        Busy: an `up` of this moment makes it.
    """
    with locked(_REGISTRY_LOCK, folder=engine_locks()):
        if left := sorted(await engine.clusters()):
            progress.note(f"the registry stays, as {named(left, 'cluster')} can pull from it")
            return
        with progress.step("removing the registry"):
            await engine.remove_container(REGISTRY_NAME)
            await engine.remove_volume(REGISTRY_NAME)


async def _reach(
    engine: Engine,
    spec: ClusterSpec,
    image_id: str,
    state: StateDirectory,
    progress: Progress,
    *,
    replace_living: bool,
) -> tuple[Placement, list[Step]]:
    """Plans and acts until the cluster is what it should be; chooses anew where a port or subnet was lost.

    Args:
        replace_living: whether another image is a reason to replace a container that lives.
    """
    taken: list[Step] = []
    lost_subnets: list[str] = []
    lost_ports: set[int] = set()
    for tries_left in reversed(range(_CHOICES)):
        try:
            async with _registry_turn(engine):
                observed = await engine.observe(spec.name)
                if not replace_living:
                    observed = as_if_on(observed, image_id)
                placement = await _place(engine, state, spec, observed, lost_subnets, lost_ports)
                steps = await _plan_at(engine, spec, image_id, state, observed, placement, lost_ports)
                taken += steps
                await _Execution(engine, spec, placement, progress).run(steps)
            break
        except EngineError as error:
            # Between our choice and its use another program may take the port, or another cluster the subnet.
            if not tries_left or not any(words in str(error).lower() for words in _LOST_CHOICE):
                raise
            ports = host_ports.named_in(str(error))
            wished = next((each for each in spec.publish if each.port.outside in ports), None)
            if wished is not None:
                preflight.require([preflight.taken_port(wished.port, str(error))])
            progress.note(f"{error}; choosing another")
            lost_ports |= ports
            # The engine does not list the other cluster's network until it is complete.
            if _LOST_SUBNET in str(error).lower():
                lost_subnets.append(placement.subnet)
    return placement, taken


async def _plan_at(
    engine: Engine,
    spec: ClusterSpec,
    image_id: str,
    state: StateDirectory,
    observed: Observed,
    placement: Placement,
    lost_ports: Set[int],
) -> list[Step]:
    """Writes what the host keeps of the cluster, and plans with it."""
    state.save_placement(spec, placement, await require_home(engine, state))
    material = await asyncio.to_thread(state.material, spec, placement, now_s=clock.real_now_s())
    if spec.apiservers:
        state.write_kubeconfig(spec, placement, material)
    return plan(
        spec,
        containers(spec, placement, material),
        observed,
        subnet=placement.subnet,
        image_id=image_id,
        registry=await _registry(engine, spec, placement, lost_ports),
    )


@asynccontextmanager
async def _registry_turn(engine: Engine) -> AsyncIterator[None]:
    """Where the registry is still to be made, one cluster after another: all of them would make it.

    Raises:
        Busy: the other one took longer than the deadline.
    """
    end_s = clock.real_monotonic_s() + _REGISTRY_DEADLINE_S
    with ExitStack() as held:
        while True:
            found = await engine.inspect(REGISTRY_NAME)
            if found is not None and found.state == "running":
                break
            try:
                held.enter_context(locked(_REGISTRY_LOCK, folder=engine_locks()))
                break
            except Busy:
                if clock.real_monotonic_s() >= end_s:
                    raise
            await clock.real_sleep(_POLL_S)
        yield


async def _check_host(engine: Engine, spec: ClusterSpec, observed: Observed, progress: Progress) -> None:
    facts = await preflight.gather(engine)
    image_present = bool(await engine.image_id(spec.image))
    problems = preflight.judge(facts, nodes=spec.nodes, image_present=image_present)
    problems += await _taken_ports(engine, spec, observed)
    preflight.require(problems)
    for problem in problems:
        progress.note(f"{problem.text}; {problem.remedy}")


async def _taken_ports(engine: Engine, spec: ClusterSpec, observed: Observed) -> list[preflight.Problem]:
    """The ports that are to be published and that something else has; of another host nothing is known."""
    if engine.host != LOOPBACK:
        return []
    # By place: a node that gives a port up to another one goes before that one comes.
    ours: set[str] = set()
    for name, found in observed.containers.items():
        if spec.publish and found.role == Role.WORKER and found.state in {"running", "paused"}:
            ours |= {str(port) for port in await engine.published(name)}
    return [
        preflight.taken_port(each.port, why)
        for each in spec.publish
        if str(each.port) not in ours and (why := host_ports.taken(each.port))
    ]


async def _place(
    engine: Engine,
    state: StateDirectory,
    spec: ClusterSpec,
    observed: Observed,
    lost_subnets: Sequence[str],
    lost_ports: Set[int],
) -> Placement:
    """Where the cluster lives: as before, with what is missing chosen now."""
    kept = state.placement()
    running = {name for name, found in observed.containers.items() if found.state in {"running", "paused"}}
    chosen = host_ports.choose_ports(
        spec, kept.ports if kept else {}, running, host=engine.host, lost=lost_ports
    )
    mtu = kept.mtu if kept else await engine.default_mtu()
    if observed.network is not None:
        return Placement(observed.network.subnet, mtu, chosen)
    used = [*await engine.subnets(), *lost_subnets]
    if kept is not None and free_subnets([kept.subnet], used):
        return replace(kept, ports=chosen)
    return Placement(host_ports.candidate_subnets(used, beginning=spec.name)[0], mtu, chosen)


async def _registry(
    engine: Engine, spec: ClusterSpec, placement: Placement, lost_ports: Set[int]
) -> Container:
    taken = {port for ports in placement.ports.values() for _, port in ports.pairs()}
    taken |= {each.port.outside for each in spec.publish}
    kept = await engine.host_port(REGISTRY_NAME, REGISTRY_PORT)
    return registry(host_port=host_ports.registry_port(kept, taken=taken, host=engine.host, lost=lost_ports))


class _Execution:
    """Carries out a plan's steps: runs of one kind side by side, kinds in order."""

    def __init__(
        self,
        engine: Engine,
        spec: ClusterSpec,
        placement: Placement,
        progress: Progress,
    ) -> None:
        self._engine = engine
        self._spec = spec
        self._placement = placement
        self._progress = progress

    async def run(self, steps: Sequence[Step]) -> None:
        for title, group in phases(steps):
            with self._progress.step(title):
                await _side_by_side(self._take, group)

    async def _take(self, step: Step) -> None:
        engine = self._engine
        match step:
            case RemoveContainer(name):
                # In good order, so that a leader gives its lease back and its successor need not wait for it.
                await engine.stop(name)
                await engine.remove_container(name)
            case RemoveNetwork(name):
                await engine.remove_network(name)
            case CreateNetwork(name):
                await engine.create_network(name, self._placement, dict(self._spec.labels))
            case CreateVolume(volume, labels):
                await engine.create_volume(volume.name, labels)
            case CreateContainer(container):
                await engine.create_container(container, self._spec.image)
            case Connect(name, network, address):
                await engine.attach(name, network, address)
            case StartContainer(name):
                try:
                    await engine.start(name)
                except EngineError as error:
                    raise preflight.explain_start_failure(error, name) from error
            case UnpauseContainer(name):
                await engine.unpause(name)
            case _:
                assert_never(step)


async def _side_by_side(work: Callable[[T], Awaitable[None]], items: Iterable[T]) -> None:
    """Calls `work` on each, two at a time, begun in order; the first failure ends the rest."""
    gate = asyncio.Semaphore(_SIDE_BY_SIDE)

    async def one(item: T) -> None:
        async with gate:
            await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for item in items:
                group.create_task(one(item))
    except BaseExceptionGroup as failures:
        # Siblings fail for the same reason; the first tells it.
        raise failures.exceptions[0] from None


def probe(state: StateDirectory, ports: HostPorts) -> RestProbe:
    """Asks an API server as the administrator.

    Raises:
        NotFoundError: the cluster's certificates are not on this host.
    """
    authority, certificate, key = state.admin_files()
    if not (authority.exists() and certificate.exists() and key.exists()):
        raise NotFoundError(
            f"the certificates of the cluster {state.cluster!r} are not on this host",
            hint="podyard up makes them anew",
        )
    return RestProbe(ports, ca=authority, certificate=certificate, key=key)


async def _heartbeats(state: StateDirectory, observed: Observed) -> dict[str, str]:
    """The nodes' last heartbeats; none where nobody knows them."""
    placement = state.placement()
    if not observed.count(Role.WORKER) or placement is None or not placement.ports:
        return {}
    try:
        return await probe(state, next(iter(placement.ports.values()))).heartbeats(timeout_s=2.0)
    except (Unreachable, NotFoundError):
        return {}


async def _await_ready(
    engine: Engine,
    request: UpRequest,
    spec: ClusterSpec,
    placement: Placement,
    state: StateDirectory,
    progress: Progress,
    before: Mapping[str, str],
) -> None:
    if not spec.apiservers:
        return
    end_s = clock.real_monotonic_s() + request.ready_deadline_s
    for name, ports in placement.ports.items():
        with progress.step(f"waiting for {name}"):
            await _poll(engine, probe(state, ports).readyz, [name], end_s, command=podyard_on(spec.name))
    if not spec.nodes:
        return
    server = spec.names(Role.APISERVER)[0]
    first = probe(state, placement.ports[server])
    names = spec.names(Role.WORKER)

    async def nodes_ready() -> None:
        states = {node.name: node for node in await first.nodes()}
        beats = await first.heartbeats() if before else {}
        # A node that stood still is Ready until its grace is over: it must have said something since.
        silent = {name for name, beat in before.items() if beats.get(name) == beat}
        missing = [
            f"{name}: {states[name].reason if name in states else 'not registered'}"
            for name in names
            if name not in states or not states[name].ready or name in silent
        ]
        if missing:
            raise Unreachable("; ".join(missing))

    with progress.step(f"waiting for {counted(len(names), 'node')}"):
        await _poll(engine, nodes_ready, [server, names[0]], end_s, command=podyard_on(spec.name))


async def _poll(
    engine: Engine, ask: Callable[[], Awaitable[None]], needed: Sequence[str], end_s: float, *, command: str
) -> None:
    """Asks until there is no complaint.

    Args:
        needed: the containers without which there will always be one; the last is what is waited for.
        command: what a command on the cluster begins with.

    Raises:
        NotReadyError: `end_s` (real monotonic) passed, or a container that is needed has ended.
    """
    while True:
        try:
            await ask()
            return
        except Unreachable as complaint:
            reason = str(complaint)
        for container in needed:
            found = await engine.inspect(container)
            meanwhile = f"while `up` waited for {'it' if container == needed[-1] else needed[-1]}"
            if found is None:
                raise NotReadyError(
                    f"{container} is gone: it was removed {meanwhile}",
                    hint=f"{command} up makes it anew; if it was to go, nothing is left to do",
                )
            if found.state in {"exited", "dead"}:
                raise NotReadyError(
                    await _with_output(engine, container, f"{container} has exited {meanwhile}"),
                    hint=f"see: {command} logs {container}; {command} up starts it again",
                )
        if clock.real_monotonic_s() >= end_s:
            raise NotReadyError(
                await _with_output(engine, needed[-1], f"{needed[-1]} is not ready: {reason}"),
                hint=f"see: {command} logs {needed[-1]}; {command} up goes on from here",
            )
        await clock.real_sleep(_POLL_S)


async def _with_output(engine: Engine, container: str, text: str) -> str:
    """A text with the end of a container's output below it, if there is any."""
    return "\n".join([text, *await engine.last_lines(container, 15)])
