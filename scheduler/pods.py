"""What of a pod the scheduler looks at, read once from its message. Pure.

`PodFacts` is what others' decisions depend on and what the cache keeps; a `Subject` is a pod that is
to be scheduled, with its facts.

Counterpart: kubernetes pkg/scheduler/framework `PodInfo`, component-helpers `AffinityTerm`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from podyard.api import pod_resources, quantity, selectors
from podyard.api.selectors import NOTHING, LabelSelector
from podyard.api.types import Pod, core_v1

# Upstream: schedutil.DefaultMilliCPURequest and DefaultMemoryRequest, for scoring only.
DEFAULT_CPU_NANOS = 100 * quantity.NANOS // 1000
DEFAULT_MEMORY_NANOS = 200 * 1024 * 1024 * quantity.NANOS

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


@dataclass(frozen=True, slots=True)
class Term:
    """One (anti-)affinity term: which pods it speaks of, and what makes two nodes the same place.

    Attributes:
        namespaces: names; the pod's own where the term names and selects none.
        namespace_selector: further namespaces, by their labels; an empty one means all.
        weight: of a preferred term; 0 for a required one.
    """

    topology_key: str
    selector: LabelSelector
    namespaces: frozenset[str]
    namespace_selector: LabelSelector = NOTHING
    weight: int = 0

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        """Whether the term speaks of a pod with these labels, in a namespace with those."""
        inside = namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)
        return inside and self.selector.matches(labels)


@dataclass(frozen=True, slots=True)
class Terms:
    """A pod's terms towards other pods."""

    required: tuple[Term, ...] = ()
    required_anti: tuple[Term, ...] = ()
    preferred: tuple[Term, ...] = ()
    preferred_anti: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.required or self.required_anti or self.preferred or self.preferred_anti)


NO_TERMS = Terms()


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What of a pod counts for others.

    Attributes:
        ending: it is being deleted; spreading does not count it any more.
        terms_key: equal for equal `terms`; None when there are none.
    """

    needs: PodNeeds
    namespace: str
    labels: Mapping[str, str]
    ending: bool = False
    terms_key: tuple[str, bytes] | None = None
    terms: Terms = field(default=NO_TERMS, compare=False)


@dataclass(frozen=True, slots=True)
class Subject:
    """A pod that is to be scheduled."""

    pod: Pod
    facts: PodFacts


def subject_of(pod: Pod) -> Subject:
    return Subject(pod, facts_of(pod))


def facts_of(pod: Pod) -> PodFacts:
    metadata = pod.metadata
    terms_key, terms = _terms_of(pod)
    return PodFacts(
        needs_of(pod),
        metadata.namespace,
        dict(metadata.labels),
        metadata.HasField("deletionTimestamp"),
        terms_key,
        terms,
    )


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


def _terms_of(pod: Pod) -> tuple[tuple[str, bytes] | None, Terms]:
    if not pod.spec.HasField("affinity"):
        return None, NO_TERMS
    affinity = pod.spec.affinity
    if not affinity.HasField("podAffinity") and not affinity.HasField("podAntiAffinity"):
        return None, NO_TERMS
    key = (pod.metadata.namespace, affinity.SerializeToString(deterministic=True))
    terms = _parsed(*key)
    return (key, terms) if terms else (None, NO_TERMS)


@lru_cache(maxsize=4096)
def _parsed(namespace: str, raw: bytes) -> Terms:
    """The pods of a workload share their terms."""
    affinity = core_v1.Affinity.FromString(raw)
    wanted, unwanted = affinity.podAffinity, affinity.podAntiAffinity
    return Terms(
        _required(wanted.requiredDuringSchedulingIgnoredDuringExecution, namespace),
        _required(unwanted.requiredDuringSchedulingIgnoredDuringExecution, namespace),
        _preferred(wanted.preferredDuringSchedulingIgnoredDuringExecution, namespace),
        _preferred(unwanted.preferredDuringSchedulingIgnoredDuringExecution, namespace),
    )


def _required(terms: Iterable[core_v1.PodAffinityTerm], namespace: str) -> tuple[Term, ...]:
    return tuple(_term(term, namespace, 0) for term in terms)


def _preferred(terms: Iterable[core_v1.WeightedPodAffinityTerm], namespace: str) -> tuple[Term, ...]:
    return tuple(_term(item.podAffinityTerm, namespace, item.weight) for item in terms)


def _term(term: core_v1.PodAffinityTerm, namespace: str, weight: int) -> Term:
    # What matchLabelKeys ask for is in the selector already: the server put it there.
    selecting = term.HasField("namespaceSelector")
    named: Collection[str] = term.namespaces
    return Term(
        term.topologyKey,
        selectors.from_message(term.labelSelector if term.HasField("labelSelector") else None),
        frozenset(named) if named or selecting else frozenset({namespace}),
        selectors.from_message(term.namespaceSelector) if selecting else NOTHING,
        weight,
    )
