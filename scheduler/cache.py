"""Nodes and what runs on them, kept up to date step by step. Pure.

A pod counts from the moment it is *assumed* (decided but not yet bound), so that the next decision
sees it; it is confirmed when the watch shows it bound, or forgotten when binding failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from podyard.api import pod_resources, quantity
from podyard.api.types import Node, Pod, Taint

# Upstream: schedutil.DefaultMilliCPURequest and DefaultMemoryRequest, for scoring only.
DEFAULT_CPU_NANOS = 100 * quantity.NANOS // 1000
DEFAULT_MEMORY_NANOS = 200 * 1024 * 1024 * quantity.NANOS

Totals = dict[str, int]  # resource name -> nano-units
HostPort = tuple[str, str, int]
ANY_ADDRESS = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class PodNeeds:
    """What a pod takes from its node, in nano-units.

    Attributes:
        scored: cpu and memory with a default for what is not asked for.
        ports: of the node itself: (address, protocol, number).
    """

    requests: Mapping[str, int]
    scored: Mapping[str, int]
    ports: frozenset[HostPort] = frozenset()


def needs_of(pod: Pod) -> PodNeeds:
    """Requests of a pod, the larger of init and main phase, with overhead."""
    requests = {
        name: amount.nanos for name, amount in pod_resources.requests(pod.spec).items() if amount.nanos
    }
    scored = {
        "cpu": requests.get("cpu") or DEFAULT_CPU_NANOS,
        "memory": requests.get("memory") or DEFAULT_MEMORY_NANOS,
    }
    ports = frozenset(
        (port.hostIP or ANY_ADDRESS, port.protocol or "TCP", port.hostPort)
        for container in pod.spec.containers
        for port in container.ports
        if port.hostPort
    )
    return PodNeeds(requests, scored, ports)


@dataclass(slots=True)
class NodeState:
    """One node. `generation` rises with each change."""

    name: str
    node: Node | None = None
    allocatable: Totals = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    requested: Totals = field(default_factory=dict)
    scored: Totals = field(default_factory=dict)
    pods: dict[str, PodNeeds] = field(default_factory=dict)
    ports: Counter[HostPort] = field(default_factory=Counter)
    generation: int = 0

    def set_node(self, node: Node) -> None:
        self.node = node
        self.allocatable = {name: quantity.of(value).nanos for name, value in node.status.allocatable.items()}
        self.taints = tuple(node.spec.taints)

    def add(self, uid: str, needs: PodNeeds) -> None:
        self.pods[uid] = needs
        _add(self.requested, needs.requests, 1)
        _add(self.scored, needs.scored, 1)
        self.ports.update(needs.ports)

    def remove(self, uid: str) -> None:
        needs = self.pods.pop(uid)
        _add(self.requested, needs.requests, -1)
        _add(self.scored, needs.scored, -1)
        for port in needs.ports:
            self.ports[port] -= 1
            if not self.ports[port]:
                del self.ports[port]


def _add(totals: Totals, amounts: Mapping[str, int], sign: int) -> None:
    for name, nanos in amounts.items():
        totals[name] = totals.get(name, 0) + sign * nanos


class Cache:
    """All nodes with their pods."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeState] = {}
        self._where: dict[str, str] = {}  # pod uid -> node
        self._assumed: set[str] = set()
        self._generation = 0

    def __len__(self) -> int:
        return sum(1 for _ in self.nodes())

    def nodes(self) -> Iterator[NodeState]:
        """Nodes that exist, by name. Pods of a node that is not known yet are kept aside."""
        return (state for _, state in sorted(self._nodes.items()) if state.node is not None)

    def get(self, name: str) -> NodeState | None:
        state = self._nodes.get(name)
        return state if state is not None and state.node is not None else None

    def set_node(self, node: Node) -> None:
        state = self._state(node.metadata.name)
        state.set_node(node)
        self._touch(state)

    def remove_node(self, name: str) -> None:
        state = self._nodes.get(name)
        if state is None:
            return
        state.node = None
        if not state.pods:
            del self._nodes[name]

    def set_pod(self, pod: Pod) -> None:
        """A pod that the watch shows on a node; confirms an assumed one."""
        uid, node = pod.metadata.uid, pod.spec.nodeName
        self._assumed.discard(uid)
        self._place(uid, node, needs_of(pod))

    def assume(self, pod: Pod, node: str) -> None:
        """Counts a pod before it is bound."""
        self._assumed.add(pod.metadata.uid)
        self._place(pod.metadata.uid, node, needs_of(pod))

    def is_assumed(self, uid: str) -> bool:
        return uid in self._assumed

    def forget(self, uid: str) -> None:
        """Takes an assumed pod back; a confirmed one stays."""
        if uid in self._assumed:
            self.remove_pod(uid)

    def remove_pod(self, uid: str) -> None:
        self._assumed.discard(uid)
        name = self._where.pop(uid, None)
        if name is None:
            return
        state = self._nodes[name]
        state.remove(uid)
        self._touch(state)
        if state.node is None and not state.pods:
            del self._nodes[name]

    def _place(self, uid: str, node: str, needs: PodNeeds) -> None:
        if self._where.get(uid) == node and self._nodes[node].pods[uid] == needs:
            return
        if uid in self._where:
            assumed = uid in self._assumed
            self.remove_pod(uid)
            if assumed:
                self._assumed.add(uid)
        state = self._state(node)
        state.add(uid, needs)
        self._where[uid] = node
        self._touch(state)

    def _state(self, name: str) -> NodeState:
        return self._nodes.setdefault(name, NodeState(name))

    def _touch(self, state: NodeState) -> None:
        self._generation += 1
        state.generation = self._generation
