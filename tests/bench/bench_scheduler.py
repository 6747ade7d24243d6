"""CPU of a scheduling decision, and what rules about other pods add: `python -m tests.bench.bench_scheduler`.

2000 pods are decided about and placed one after another on 100 nodes, with the scheduler's own cache
and decisions, without a server. Each row says what the pods are like; the first is the measure of the
others: the same pods without the plugins that look at other pods. Rows take turns, the least of
three counts. Exits 1 when a ratio is over its limit or when a pod found no place.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from podyard.api.types import Node, Pod, apps_v1
from scheduler.cache import Cache
from scheduler.decide import Chosen, decide
from scheduler.framework import Plugin
from scheduler.pods import subject_of
from scheduler.profile import DEFAULT

NODES, PODS, TURNS = 100, 2000, 3
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
ABOUT_OTHERS = ("PodTopologySpread", "InterPodAffinity", "ImageLocality")


def node(number: int, zones: int) -> Node:
    name = f"node-{number:03}"
    labels = {HOSTNAME: name, "kubernetes.io/os": "linux"}
    if zones:
        labels[ZONE] = f"zone-{number % zones}"
    allocatable = {"cpu": "32", "memory": "64Gi", "pods": "110"}
    return Node(
        metadata={"name": name, "labels": labels},
        status={"allocatable": {key: {"string": value} for key, value in allocatable.items()}},
    )


def replica(number: int, workload: int = 0, **spec: Any) -> Pod:
    """One pod of a ReplicaSet, as the controllers and the server's defaults make it."""
    owner = f"web-{workload}"
    requests = {"cpu": {"string": "100m"}, "memory": {"string": "64Mi"}}
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
        for key in ("not-ready", "unreachable")
    ]
    return Pod(
        metadata={
            "name": f"{owner}-{number}",
            "namespace": "default",
            "uid": f"{owner}-{number}",
            "labels": {"app": owner, "pod-template-hash": "abc"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "controller": True}
            ],
        },
        spec={
            "containers": [{"name": "main", "image": "nginx", "resources": {"requests": requests}}],
            "tolerations": tolerations,
            **spec,
        },
    )


def terms(workload: int) -> list[dict[str, Any]]:
    return [{"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": f"web-{workload}"}}}]


def numbered(number: int) -> Pod:
    """Labels of its own, as those of a StatefulSet."""
    pod = replica(number)
    pod.metadata.labels["statefulset.kubernetes.io/pod-name"] = pod.metadata.name
    return pod


def apart(number: int) -> Pod:
    """Twenty workloads, each with one pod on every node."""
    workload = number // NODES
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": terms(workload)}
    return replica(number, workload, affinity={"podAntiAffinity": rule})


def preferring(number: int) -> Pod:
    rule = [{"weight": 100, "podAffinityTerm": term} for term in terms(0)]
    side = {"preferredDuringSchedulingIgnoredDuringExecution": rule}
    return replica(number, affinity={"podAntiAffinity": side})


def evenly(number: int) -> Pod:
    rule = {**terms(0)[0], "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return replica(number, topologySpreadConstraints=[rule])


@dataclass(frozen=True)
class Row:
    """One sort of pods.

    Attributes:
        owned: the scheduler knows the pods' owner, so they are spread by default.
        limit: the most that a decision may cost, as a multiple of the first row's.
    """

    name: str
    pod: Callable[[int], Pod] = replica
    owned: bool = False
    zones: int = 0
    without_rules: bool = False
    limit: float = 1.0


ROWS = (
    Row("without the three plugins", without_rules=True),
    Row("nobody speaks of them", limit=1.15),
    Row("spread by default", owned=True, limit=1.5),
    Row("spread by default, 3 zones", owned=True, zones=3, limit=1.8),
    Row("the same, each with a label of its own", numbered, owned=True, zones=3, limit=1.8),
    Row("spread evenly, required", evenly, limit=1.8),
    Row("apart, preferred", preferring, limit=1.8),
    Row("20 workloads apart, required", apart, limit=3.0),
)


def measure(row: Row) -> float:
    """Microseconds of CPU for each decision."""
    cache = Cache()
    for number in range(NODES):
        cache.set_node(node(number, row.zones))
    if row.owned:
        owner = apps_v1.ReplicaSet(
            metadata={"namespace": "default", "name": "web-0"},
            spec={"selector": {"matchLabels": {"app": "web-0", "pod-template-hash": "abc"}}},
        )
        cache.owners.set_owner(owner)
    profile: list[Plugin] = [p for p in DEFAULT if not (row.without_rules and p.name in ABOUT_OTHERS)]
    pods = [row.pod(number) for number in range(PODS)]
    start = 0
    began_s = time.process_time()
    for pod in pods:
        subject = subject_of(pod)
        answer = decide(subject, cache, profile, start=start, tie=0.5)
        if not isinstance(answer, Chosen):
            raise SystemExit(f"{row.name}: {pod.metadata.name}: {answer.message}")
        start = (start + answer.examined) % NODES
        cache.assume(pod.metadata.uid, subject.facts, answer.node)
    return (time.process_time() - began_s) / PODS * 1e6


def main() -> int:
    """Prints the table; answers the exit code."""
    least = {row: float("inf") for row in ROWS}
    for _ in range(TURNS):
        for row in ROWS:
            least[row] = min(least[row], measure(row))
    base, code = least[ROWS[0]], 0
    print(f"{PODS} pods on {NODES} nodes{'':18} us a decision   ratio   limit")
    for row in ROWS:
        ratio = least[row] / base
        over = ratio > row.limit and row is not ROWS[0]
        code |= over
        print(f"{row.name:40} {least[row]:13.0f} {ratio:7.2f} {row.limit:7.2f}{'  OVER' if over else ''}")
    return code


if __name__ == "__main__":
    sys.exit(main())
