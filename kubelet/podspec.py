"""Facts about a pod's spec that several parts of the kubelet need. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from podyard.api import pod_resources
from podyard.api.types import Container, ObjectMeta, Pod, copy_of

GUARANTEED = "Guaranteed"
BURSTABLE = "Burstable"
BEST_EFFORT = "BestEffort"


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
    """Guaranteed, Burstable or BestEffort: as the API server recorded it, else as it follows."""
    return pod.status.qosClass or pod_resources.qos_class(pod)


def grace_s(pod: Pod) -> float:
    """The grace with which a pod ends: of its deletion, else of its spec."""
    if pod.metadata.HasField("deletionGracePeriodSeconds"):
        return float(pod.metadata.deletionGracePeriodSeconds)
    return spec_grace_s(pod)


def spec_grace_s(pod: Pod) -> float:
    """The grace of a pod that ends by itself or by the kubelet's will."""
    if pod.spec.HasField("terminationGracePeriodSeconds"):
        return float(pod.spec.terminationGracePeriodSeconds)
    return 30.0


def same_but_status(before: Pod, after: Pod) -> bool:
    """Whether two states of a pod ask the same of the kubelet.

    Source: pkg/kubelet/config podsDifferSemantically, which passes over what the kubelet itself writes.
    """
    return before.spec == after.spec and _asked(before) == _asked(after)


def _asked(pod: Pod) -> ObjectMeta:
    metadata = copy_of(pod.metadata)
    metadata.ClearField("resourceVersion")
    metadata.ClearField("managedFields")
    return metadata
