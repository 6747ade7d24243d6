"""Failure verbs: what can happen to a machine, done to one container. Each is idempotent.

kill is power loss, stop an orderly shutdown, pause a freeze, partition a cut cable: packets to and
from every other container of the cluster are dropped both ways, so connections stay half open and
the pods run on. `docker kill`, `docker start` and the like by hand do the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from podyard.base import clock
from podyard.cluster.bringup import probe
from podyard.cluster.engine import Engine
from podyard.cluster.errors import ClusterError, NotFoundError, NotReadyError, no_cluster
from podyard.cluster.homes import require_home
from podyard.cluster.plan import ObservedContainer
from podyard.cluster.rest import Unreachable
from podyard.cluster.spec import HostPorts, Role, container_name, full_name
from podyard.cluster.state import StateDirectory

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


# What `podyard node` and `podyard component` act on.
NODES = (Role.WORKER,)
COMPONENTS = (Role.ETCD, Role.APISERVER, Role.SCHEDULER, Role.CONTROLLER_MANAGER)


class Verbs:
    """Verbs on the containers of one cluster."""

    def __init__(self, engine: Engine, cluster: str) -> None:
        self._engine = engine
        self._cluster = cluster

    async def find(self, name: str, roles: tuple[Role, ...]) -> ObservedContainer:
        """The container that a user means.

        Raises:
            NotFoundError: there is none of these roles; the hint lists those there are.
            ClusterError: the cluster lives on another engine.
        """
        await require_home(self._engine, StateDirectory(self._cluster))
        observed = await self._engine.observe(self._cluster)
        wanted = full_name(self._cluster, name)
        found = observed.containers.get(wanted)
        if not observed.containers:
            raise no_cluster(self._cluster)
        if found is None or found.role not in {role.value for role in roles}:
            there = sorted(c.name for c in observed.containers.values() if c.role in {r.value for r in roles})
            listed = ", ".join(there) or "none"
            raise NotFoundError(f"{wanted} is not here", hint=f"there are: {listed}")
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
        await self._running(name, allow_paused=True)
        await self._engine.pause(name)

    async def resume(self, name: str) -> None:
        """Thaws it."""
        await self._engine.thaw(name)

    async def partition(self, name: str) -> None:
        """Cuts it off from every other container of its cluster.

        Raises:
            ClusterError: it does not run, so it has no network to cut.
        """
        await self._running(name, allow_paused=True)
        neighbours = await self._engine.neighbours(self._cluster, name)
        rules = partition_rules([Neighbour(address, mac) for address, mac in neighbours])
        await self._engine.in_network_of(name, ["nft", "-f", "-"], rules)

    async def heal(self, name: str) -> None:
        """Takes the cut away."""
        await self._running(name, allow_paused=True)
        await self._engine.in_network_of(name, ["nft", "-f", "-"], heal_rules())

    async def remove_node(self, name: str) -> None:
        """Undoes `add`: the node leaves the cluster with its pods, container and volumes.

        Raises:
            ClusterError: it is not the last one, so `up` would bring it back.
        """
        observed = await self._engine.observe(self._cluster)
        last = container_name(self._cluster, Role.WORKER, observed.count(Role.WORKER))
        if name != last:
            raise ClusterError(f"{name} is not the last node", hint=f"remove {last} first, or kill {name}")
        state = StateDirectory(self._cluster)
        state.settings()  # what cannot be read could not be kept
        await probe(state, _ports(state)).delete_node(name)
        await self._engine.remove_container(name)
        for volume in sorted(await self._engine.volumes_of(self._cluster, name)):
            await self._engine.remove_volume(volume)
        state.save_nodes(observed.count(Role.WORKER) - 1)

    async def _running(self, name: str, *, allow_paused: bool) -> None:
        found = await self._engine.inspect(name)
        state = found.state if found is not None else "gone"
        if state != "running" and not (allow_paused and state == "paused"):
            raise ClusterError(f"{name} does not run (it is {state})", hint="start it first")

    async def heartbeat(self, name: str) -> str:
        """A node's last heartbeat, to tell a later one by; empty where nobody knows."""
        state = StateDirectory(self._cluster)
        try:
            return (await probe(state, _ports(state)).heartbeats()).get(name, "")
        except (Unreachable, NotFoundError):
            return ""

    async def until_ready(self, name: str, *, ready: bool, timeout_s: float, after: str = "") -> None:
        """Waits until the API server calls a node ready, or not.

        Args:
            after: a heartbeat; ready is only a node that has had another one since.

        Raises:
            NotReadyError: not in time.
        """
        state = StateDirectory(self._cluster)
        ask = probe(state, _ports(state))

        async def as_wanted() -> bool:
            try:
                nodes = {node.name: node.ready for node in await ask.nodes()}
                if not after or nodes.get(name) is not ready:
                    return nodes.get(name) is ready
                return (await ask.heartbeats()).get(name) != after
            except Unreachable:
                return False

        word = "Ready" if ready else "NotReady"
        await _until(as_wanted, f"{name} is not {word} after {timeout_s:g} s", timeout_s)


def _ports(state: StateDirectory) -> HostPorts:
    placement = state.placement()
    if placement is None or not placement.ports:
        raise NotFoundError(
            f"the cluster {state.cluster!r} has no API server on this host", hint="podyard up makes one"
        )
    return next(iter(placement.ports.values()))


async def _until(condition: Callable[[], Awaitable[bool]], problem: str, timeout_s: float) -> None:
    end_s = clock.real_monotonic_s() + timeout_s
    while not await condition():
        if clock.real_monotonic_s() > end_s:
            raise NotReadyError(problem, hint="podyard status shows what runs, podyard logs what it says")
        await clock.real_sleep(_POLL_S)


def expectation(verb: str, *, node: bool, grace_s: float, toleration_s: float) -> str:
    """What to expect next, for the user to read."""
    if not node:
        return {
            "kill": "nothing supervises it now: it stays dead until `start` or `up`",
            "stop": "it stays stopped until `start` or `up`",
            "pause": "its connections stay open and silent; peers go to another of its kind, if any",
            "partition": "its connections stay half open; peers find out by their keepalives",
        }.get(verb, "it takes up its work where the store says it stands")
    if verb in ("kill", "stop", "pause", "partition"):
        return (
            f"NotReady in about {grace_s:g} s, eviction {toleration_s:g} s later; "
            "watch: podyard kubectl get nodes,pods -o wide -w"
        )
    return "Ready within about 15 s; pods that were evicted meanwhile vanish, nothing moves back"
