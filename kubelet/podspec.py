"""Facts about a pod's spec that several parts of the kubelet need. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from podyard.api import quantity
from podyard.api.types import Container, Pod

GUARANTEED = "Guaranteed"
BURSTABLE = "Burstable"
BEST_EFFORT = "BestEffort"
_QOS_RESOURCES = ("cpu", "memory")


def container_hash(container: Container) -> str:
    """Changes when a container must be replaced: upstream hashes name and image."""
    return hashlib.sha256(f"{container.name}\0{container.image}".encode()).hexdigest()[:16]


def full_name(pod: Pod) -> str:
    """`name_namespace`, as upstream's logs and messages have it."""
    return f"{pod.metadata.name}_{pod.metadata.namespace}"


def all_containers(pod: Pod) -> Iterator[Container]:
    yield from pod.spec.initContainers
    yield from pod.spec.containers


def find_container(pod: Pod, name: str) -> Container | None:
    return next((container for container in all_containers(pod) if container.name == name), None)


def qos_class(pod: Pod) -> str:
    """Guaranteed, Burstable or BestEffort (upstream: qos.ComputePodQOS)."""
    if pod.status.qosClass:
        return pod.status.qosClass
    requested, limited, guaranteed = False, False, True
    for container in all_containers(pod):
        requests, limits = container.resources.requests, container.resources.limits
        for name in _QOS_RESOURCES:
            request = quantity.of(requests[name]) if name in requests else None
            limit = quantity.of(limits[name]) if name in limits else None
            requested = requested or bool(request and request.nanos)
            limited = limited or bool(limit and limit.nanos)
            if limit is None or not limit.nanos or (request is not None and request.nanos != limit.nanos):
                guaranteed = False
    if not requested and not limited:
        return BEST_EFFORT
    return GUARANTEED if guaranteed else BURSTABLE


def grace_s(pod: Pod) -> float:
    """The grace with which a pod ends: of its deletion, else of its spec."""
    if pod.metadata.HasField("deletionGracePeriodSeconds"):
        return float(pod.metadata.deletionGracePeriodSeconds)
    if pod.spec.HasField("terminationGracePeriodSeconds"):
        return float(pod.spec.terminationGracePeriodSeconds)
    return 30.0
