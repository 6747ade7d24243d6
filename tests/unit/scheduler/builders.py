"""Nodes, pods and caches for the scheduler's tests."""

from __future__ import annotations

from typing import Any

from podyard.api.types import Namespace, Node, Pod, Service, apps_v1
from scheduler.cache import Cache, NodeState
from scheduler.decide import Chosen, Unschedulable, decide
from scheduler.framework import Plugin, Refusal
from scheduler.pods import facts_of, subject_of
from scheduler.profile import DEFAULT

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def node(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "8Gi",
    pods: str = "110",
    labels=None,
    taints=(),
    cordon=False,
    images=(),
    zone: str = "",
) -> Node:
    allocatable = {"cpu": cpu, "memory": memory, "pods": pods}
    own = {HOSTNAME: name} | ({ZONE: zone} if zone else {})
    return Node(
        metadata={"name": name, "labels": own | (labels or {})},
        spec={"taints": list(taints), "unschedulable": cordon},
        status={
            "allocatable": {key: {"string": value} for key, value in allocatable.items()},
            "images": [{"names": [name], "sizeBytes": size} for name, size in images],
        },
    )


def pod(
    name: str = "p",
    *,
    cpu: str = "",
    memory: str = "",
    labels=None,
    namespace: str = "default",
    ending: bool = False,
    owner: str = "",
    **spec: Any,
) -> Pod:
    requests = {key: {"string": value} for key, value in (("cpu", cpu), ("memory", memory)) if value}
    made = Pod(
        metadata={"name": name, "namespace": namespace, "uid": name, "labels": labels or {}},
        spec={"containers": [{"name": "c", "resources": {"requests": requests}}], **spec},
    )
    if ending:
        made.metadata.deletionTimestamp.seconds = 1
    if owner:
        made.metadata.ownerReferences.add(
            apiVersion="apps/v1", kind="ReplicaSet", name=owner, uid=owner, controller=True
        )
    return made


def replica_set(name: str, labels, namespace: str = "default") -> apps_v1.ReplicaSet:
    metadata = {"name": name, "namespace": namespace}
    return apps_v1.ReplicaSet(metadata=metadata, spec={"selector": {"matchLabels": labels}})


def service(name: str, selector, namespace: str = "default") -> Service:
    return Service(metadata={"name": name, "namespace": namespace}, spec={"selector": selector})


def namespace(name: str, **labels: str) -> Namespace:
    return Namespace(metadata={"name": name, "labels": labels})


def affinity(required=(), preferred=()) -> dict[str, Any]:
    """One side: terms, and (weight, term) pairs."""
    return {
        "requiredDuringSchedulingIgnoredDuringExecution": list(required),
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": weight, "podAffinityTerm": term} for weight, term in preferred
        ],
    }


def term(key: str = HOSTNAME, *, labels=None, **more: Any) -> dict[str, Any]:
    """A term for pods with these labels."""
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels or {}}, **more}


def cluster(*nodes: Node, pods=(), namespaces=()) -> Cache:
    cache = Cache()
    for entry in nodes:
        cache.set_node(entry)
    for entry in pods:
        cache.set_pod(entry)
    for entry in namespaces:
        cache.set_namespace(entry)
    return cache


def result(subject: Pod, cache: Cache, tie: float = 0.0) -> Chosen | Unschedulable:
    return decide(subject_of(subject), cache, DEFAULT, start=0, tie=tie)


def assume(cache: Cache, subject: Pod, where: str) -> None:
    cache.assume(subject.metadata.uid, facts_of(subject), where)


def filtered(plugin: Plugin, subject: Pod, cache: Cache) -> dict[str, Refusal | None]:
    """What a plugin says of each node."""
    facts = plugin.pre_filter(subject_of(subject), cache)
    return {state.name: None if facts is None else plugin.filter(facts, state) for state in cache.nodes()}


def scored(plugin: Plugin, subject: Pod, cache: Cache, nodes=None) -> dict[str, int] | None:
    """A plugin's scores from 0 to 100; None when all nodes are the same to it."""
    states: list[NodeState] = [s for s in cache.nodes() if nodes is None or s.name in nodes]
    facts = plugin.pre_score(subject_of(subject), cache, states)
    if facts is None:
        return None
    scores = plugin.normalize([plugin.score(facts, state) for state in states])
    return {state.name: score for state, score in zip(states, scores, strict=True)}
