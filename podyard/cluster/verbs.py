"""Failure verbs: what can happen to a machine, done to one container. Each is idempotent.

kill is power loss, stop an orderly shutdown, pause a freeze, partition a cut cable: packets to and
from every other container of the cluster are dropped both ways, so connections stay half open and
the pods run on. `docker kill`, `docker start` and the like by hand do the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from podyard.base import clock
from podyard.cluster import health
from podyard.cluster.bringup import probe
from podyard.cluster.conditions import PAUSED, RUNNING, Condition, cut_now
from podyard.cluster.engine import Engine
from podyard.cluster.errors import ClusterError, NotFoundError, NotReadyError, SpecError, no_cluster
from podyard.cluster.homes import require_home
from podyard.cluster.plan import ObservedContainer
from podyard.cluster.rest import Unreachable
from podyard.cluster.spec import HostPorts, Role, container_name, full_name
from podyard.cluster.state import StateDirectory
from podyard.cluster.wording import podyard_on

TABLE = "podyard_partition"
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another container on the cluster's network."""

    address: str
    mac: str


def partition_rules(neighbours: list[Neighbour]) -> str:
    """Rules that drop what comes from and goes to neighbours, for `nft -f -` in the container's network.

    What is matched is the neighbour itself (its link address, the next hop), not only its IP
    address: traffic of pods behind it must not pass either.
    """
    macs = ", ".join(sorted({neighbour.mac for neighbour in neighbours if neighbour.mac}))
    addresses = ", ".join(sorted({neighbour.address for neighbour in neighbours if neighbour.address}))
    return f"""table inet {TABLE}
delete table inet {TABLE}
table inet {TABLE} {{
    chain from_neighbours {{
        type filter hook prerouting priority -400; policy accept;
        ether saddr {{ {macs} }} drop
    }}
    chain to_neighbours {{
        type filter hook postrouting priority -400; policy accept;
        rt ip nexthop {{ {addresses} }} drop
    }}
}}
"""


def heal_rules() -> str:
    """Takes a partition away; there may be none."""
    return f"table inet {TABLE}\ndelete table inet {TABLE}\n"


class Verbs:
    """Verbs on the containers of one cluster."""

    def __init__(self, engine: Engine, cluster: str) -> None:
        self._engine = engine
        self._cluster = cluster
        self._state = StateDirectory(cluster)

    async def find(self, name: str, roles: tuple[Role, ...]) -> ObservedContainer:
        """The container that a user means; a role alone is enough where it has one container.

        Raises:
            NotFoundError: there is none of these roles; the hint lists those there are.
            ClusterError: the cluster lives on another engine.
        """
        await require_home(self._engine, self._state)
        observed = await self._engine.observe(self._cluster)
        if not observed.containers:
            raise no_cluster(self._cluster)
        found = observed.meant_by(self._cluster, name)
        if found is None or found.role not in {role.value for role in roles}:
            there = sorted(c.name for c in observed.containers.values() if c.role in {r.value for r in roles})
            listed = ", ".join(there) or "none"
            raise NotFoundError(f"{full_name(self._cluster, name)} is not here", hint=f"there are: {listed}")
        return found

    async def kill(self, name: str) -> None:
        """Power loss: returns when the container is dead."""
        await self._engine.kill(name)

    async def stop(self, name: str) -> None:
        """Orderly end; a frozen container is thawed first, or it could not hear of it."""
        await self._engine.thaw(name)
        await self._engine.stop(name)

    async def start(self, name: str) -> None:
        """Starts it again; one that runs is left alone."""
        await self._engine.thaw(name)
        await self._engine.start(name)

    async def pause(self, name: str) -> None:
        """Freezes every process.

        Raises:
            ClusterError: it does not run.
        """
        await self._running(name)
        await self._engine.pause(name)

    async def resume(self, name: str) -> None:
        """Thaws it; one that runs is left alone.

        Raises:
            ClusterError: it does not run.
        """
        await self._running(name)
        await self._engine.thaw(name)

    async def partition(self, name: str) -> None:
        """Cuts it off from every other container of its cluster.

        Raises:
            ClusterError: it does not run, so it has no network to cut.
        """
        found = await self._running(name)
        neighbours = await self._engine.neighbours(self._cluster, name)
        rules = partition_rules([Neighbour(address, mac) for address, mac in neighbours])
        # Before it is true, so that no end of this process leaves a cut that nobody knows of.
        self._state.save_cut(name, found.started_at)
        await self._engine.in_network_of(name, ["nft", "-f", "-"], rules)

    async def heal(self, name: str) -> None:
        """Takes the cut away."""
        await self._running(name)
        await self._engine.in_network_of(name, ["nft", "-f", "-"], heal_rules())
        self._state.forget_cut(name)

    async def remove_node(self, name: str) -> None:
        """Undoes `add`: the node leaves the cluster with its pods, container and volumes.

        Raises:
            SpecError: it is not the last one, so `up` would bring it back.
        """
        observed = await self._engine.observe(self._cluster)
        last = container_name(self._cluster, Role.WORKER, observed.count(Role.WORKER))
        if name != last:
            raise SpecError(f"{name} is not the last node", hint=f"remove {last} first, or kill {name}")
        state = self._state
        state.settings()  # what cannot be read could not be kept
        await probe(state, _ports(state)).delete_node(name)
        await self._engine.remove_container(name)
        for volume in sorted(await self._engine.volumes_of(self._cluster, name)):
            await self._engine.remove_volume(volume)
        state.save_nodes(observed.count(Role.WORKER) - 1)

    async def condition(self, name: str) -> Condition:
        """How a container is now."""
        found = await self._engine.inspect(name)
        if found is None:
            return Condition("gone")
        return Condition(found.state, cut_now(found, self._state.cut(name)))

    async def _running(self, name: str) -> ObservedContainer:
        """A container that runs, were it frozen."""
        found = await self._engine.inspect(name)
        if found is None or found.state not in (RUNNING, PAUSED):
            state = found.state if found is not None else "gone"
            raise ClusterError(f"{name} does not run (it is {state})", hint=self.command("start", name))
        return found

    def command(self, verb: str, name: str) -> str:
        """The command line of a verb on one of the cluster's containers."""
        short = name.removeprefix(f"{self._cluster}-")
        noun = "node" if short.startswith(f"{Role.WORKER.value}-") else "component"
        return f"{podyard_on(self._cluster)} {noun} {verb} {short}"

    async def heartbeat(self, found: ObservedContainer) -> str:
        """A node's last heartbeat, to tell a later one by; empty where nobody knows, and for components."""
        if found.role != Role.WORKER:
            return ""
        try:
            return (await probe(self._state, _ports(self._state)).heartbeats()).get(found.name, "")
        except (Unreachable, NotFoundError):
            return ""

    async def until_ready(
        self, found: ObservedContainer, *, ready: bool, timeout_s: float, after: str = ""
    ) -> None:
        """Waits until the API server calls a node ready, or not; a component, until it calls itself ready.

        A component that was broken is not waited for: it is so at once.

        Args:
            after: a heartbeat; ready is only a node that has had another one since.

        Raises:
            NotReadyError: not in time; or at once, where another verb is needed before it can be.
        """
        if ready:
            await self._require_free(found.name)
        if found.role == Role.WORKER:
            await self._until_called_ready(found.name, ready=ready, timeout_s=timeout_s, after=after)
        elif ready:
            await self._until_healthy(found, timeout_s=timeout_s)

    async def _until_called_ready(self, name: str, *, ready: bool, timeout_s: float, after: str) -> None:
        ask = probe(self._state, _ports(self._state))

        async def as_wanted() -> bool:
            try:
                nodes = {node.name: node.ready for node in await ask.nodes()}
                if not after or nodes.get(name) is not ready:
                    return nodes.get(name) is ready
                return (await ask.heartbeats()).get(name) != after
            except Unreachable:
                return False

        word = "Ready" if ready else "NotReady"
        await _until(as_wanted, lambda: f"{name} is not {word} after {timeout_s:g} s", timeout_s)

    async def _until_healthy(self, found: ObservedContainer, *, timeout_s: float) -> None:
        lacking = ""

        async def healthy() -> bool:
            nonlocal lacking
            lacking = await health.problem(self._engine, found.name, found.role)
            return not lacking

        # What it lacks is known only then.
        await _until(healthy, lambda: f"{found.name} after {timeout_s:g} s: {lacking}", timeout_s)

    async def _require_free(self, name: str) -> None:
        if held_back := (await self.condition(name)).held_back():
            why, verb = held_back
            raise NotReadyError(f"{name} cannot become Ready: {why}", hint=self.command(verb, name))


def _ports(state: StateDirectory) -> HostPorts:
    placement = state.placement()
    if placement is None or not placement.ports:
        raise NotFoundError(
            f"the cluster {state.cluster!r} has no API server on this host", hint="podyard up makes one"
        )
    return next(iter(placement.ports.values()))


async def _until(
    condition: Callable[[], Awaitable[bool]], problem: Callable[[], str], timeout_s: float
) -> None:
    end_s = clock.real_monotonic_s() + timeout_s
    while not await condition():
        if clock.real_monotonic_s() > end_s:
            raise NotReadyError(problem(), hint="podyard status shows what runs, podyard logs what it says")
        await clock.real_sleep(_POLL_S)
