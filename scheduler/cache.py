"""Nodes and what runs on them, kept up to date step by step. Pure.

A pod counts from the moment it is *assumed* (decided but not yet bound), so that the next decision
sees it; it is confirmed when the watch shows it bound, or forgotten when binding failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from podyard.api import quantity
from podyard.api.types import Namespace, Node, Pod, Taint
from scheduler.owners import Owners
from scheduler.podindex import PodIndex
from scheduler.pods import HostPort, PodFacts, facts_of

Totals = dict[str, int]  # resource name -> nano-units
_NO_LABELS: Mapping[str, str] = {}


@dataclass(slots=True)
class NodeState:
    """One node. `generation` rises with each change.

    Attributes:
        images: name -> size in bytes.
    """

    name: str
    node: Node | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    allocatable: Totals = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    cordoned: bool = False
    images: Mapping[str, int] = field(default_factory=dict)
    requested: Totals = field(default_factory=dict)
    scored: Totals = field(default_factory=dict)
    pods: dict[str, PodFacts] = field(default_factory=dict)
    ports: Counter[HostPort] = field(default_factory=Counter)
    generation: int = 0

    def set_node(self, node: Node) -> None:
        self.node = node
        self.labels = dict(node.metadata.labels)
        self.allocatable = {name: quantity.of(value).nanos for name, value in node.status.allocatable.items()}
        self.taints = tuple(node.spec.taints)
        self.cordoned = node.spec.unschedulable
        self.images = {name: image.sizeBytes for image in node.status.images for name in image.names}

    def add(self, uid: str, facts: PodFacts) -> None:
        self.pods[uid] = facts
        needs = facts.needs
        _add(self.requested, needs.requests, 1)
        _add(self.scored, needs.scored, 1)
        if needs.ports:
            self.ports.update(needs.ports)

    def remove(self, uid: str) -> PodFacts:
        facts = self.pods.pop(uid)
        needs = facts.needs
        _add(self.requested, needs.requests, -1)
        _add(self.scored, needs.scored, -1)
        for port in needs.ports:
            self.ports[port] -= 1
            if not self.ports[port]:
                del self.ports[port]
        return facts


def _add(totals: Totals, amounts: Mapping[str, int], sign: int) -> None:
    for name, nanos in amounts.items():
        totals[name] = totals.get(name, 0) + sign * nanos


class Cache:
    """All nodes with their pods, and what else decisions look at.

    Attributes:
        index: the same pods, by what other pods' rules ask.
        owners: selectors of Services and owners.
        images: name -> how many nodes have that image.
    """

    def __init__(self) -> None:
        self.index = PodIndex()
        self.owners = Owners()
        self.images: Counter[str] = Counter()
        self._nodes: dict[str, NodeState] = {}
        self._in_order: list[NodeState] | None = None
        self._namespaces: dict[str, Mapping[str, str]] = {}  # name -> labels
        self._where: dict[str, str] = {}  # pod uid -> node
        self._assumed: set[str] = set()
        self._generation = 0

    def __len__(self) -> int:
        return len(self.nodes())

    def nodes(self) -> Sequence[NodeState]:
        """Nodes that exist, by name. Pods of a node that is not known yet are kept aside."""
        if self._in_order is None:
            self._in_order = [state for _, state in sorted(self._nodes.items()) if state.node is not None]
        return self._in_order

    def get(self, name: str) -> NodeState | None:
        state = self._nodes.get(name)
        return state if state is not None and state.node is not None else None

    def set_node(self, node: Node) -> None:
        state = self._state(node.metadata.name)
        if state.node is None:
            self._in_order = None
        self._count_images(state, -1)
        state.set_node(node)
        self._count_images(state, 1)
        self._touch(state)

    def remove_node(self, name: str) -> None:
        state = self._nodes.get(name)
        if state is None:
            return
        self._count_images(state, -1)
        state.node, state.images = None, {}
        self._in_order = None
        if not state.pods:
            del self._nodes[name]

    def _count_images(self, state: NodeState, change: int) -> None:
        for name in state.images:
            self.images[name] += change
            if not self.images[name]:
                del self.images[name]

    # Namespaces.

    def set_namespace(self, namespace: Namespace) -> None:
        self._namespaces[namespace.metadata.name] = dict(namespace.metadata.labels)

    def remove_namespace(self, name: str) -> None:
        self._namespaces.pop(name, None)

    def namespaces(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of every namespace."""
        return self._namespaces

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """None are known of a namespace that has not been seen."""
        return self._namespaces.get(name, _NO_LABELS)

    # Pods.

    def facts(self, uid: str) -> PodFacts | None:
        """What is counted of a pod that has a node; None of one that has none."""
        node = self._where.get(uid)
        return None if node is None else self._nodes[node].pods[uid]

    def set_pod(self, pod: Pod) -> PodFacts:
        """A pod that the watch shows on a node; confirms an assumed one."""
        uid, facts = pod.metadata.uid, facts_of(pod)
        self._assumed.discard(uid)
        self._place(uid, pod.spec.nodeName, facts)
        return facts

    def assume(self, uid: str, facts: PodFacts, node: str) -> None:
        """Counts a pod before it is bound."""
        self._assumed.add(uid)
        self._place(uid, node, facts)

    def is_assumed(self, uid: str) -> bool:
        return uid in self._assumed

    def forget(self, uid: str) -> PodFacts | None:
        """Takes an assumed pod back; a confirmed one stays. Answers what does not count any more."""
        return self.remove_pod(uid) if uid in self._assumed else None

    def remove_pod(self, uid: str) -> PodFacts | None:
        """Answers what does not count any more."""
        self._assumed.discard(uid)
        name = self._where.pop(uid, None)
        if name is None:
            return None
        state = self._nodes[name]
        facts = state.remove(uid)
        self.index.remove(facts, name)
        self._touch(state)
        if state.node is None and not state.pods:
            del self._nodes[name]
        return facts

    def _place(self, uid: str, node: str, facts: PodFacts) -> None:
        if self._where.get(uid) == node and self._nodes[node].pods[uid] == facts:
            return
        if uid in self._where:
            assumed = uid in self._assumed
            self.remove_pod(uid)
            if assumed:
                self._assumed.add(uid)
        state = self._state(node)
        state.add(uid, facts)
        self.index.add(facts, node)
        self._where[uid] = node
        self._touch(state)

    def _state(self, name: str) -> NodeState:
        return self._nodes.setdefault(name, NodeState(name))

    def _touch(self, state: NodeState) -> None:
        self._generation += 1
        state.generation = self._generation
