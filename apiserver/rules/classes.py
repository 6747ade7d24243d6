"""Classes that objects get or name: of storage, of ingress, of the container runtime. Pure.

Counterpart: kubernetes plugin/pkg/admission/{storage/storageclass/setdefault,network/defaultingressclass,
runtimeclass}.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from podyard.api import codec
from podyard.api.types import PodSpec, core_v1, networking_v1, node_v1

DEFAULT_STORAGE = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
DEFAULT_INGRESS = ("ingressclass.kubernetes.io/is-default-class",)
_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
_INGRESS_CLASS = "kubernetes.io/ingress.class"


class Rejected(Exception):
    """The pod does not fit its runtime class; the text is for the user."""


def default_class(classes: Iterable[Any], annotations: Sequence[str]) -> str:
    """The class that is marked as the default, the newest of several; empty for none."""
    marked = [
        item for item in classes if any(item.metadata.annotations.get(name) == "true" for name in annotations)
    ]
    if not marked:
        return ""
    newest = min(marked, key=lambda item: (-item.metadata.creationTimestamp.seconds, item.metadata.name))
    return str(newest.metadata.name)


def wants_storage_class(claim: core_v1.PersistentVolumeClaim) -> bool:
    """Whether a claim says nothing of its class; an empty name says that it wants none."""
    return not claim.spec.HasField("storageClassName") and _STORAGE_CLASS not in claim.metadata.annotations


def wants_ingress_class(ingress: networking_v1.Ingress) -> bool:
    """Whether an ingress says nothing of its class."""
    return (
        not ingress.spec.HasField("ingressClassName") and _INGRESS_CLASS not in ingress.metadata.annotations
    )


def use_runtime_class(spec: PodSpec, runtime_class: node_v1.RuntimeClass | None) -> None:
    """Gives a pod the overhead and the places of its runtime class; `spec` is changed.

    Args:
        runtime_class: None for a pod that names none.

    Raises:
        Rejected: they contradict what the pod says itself.
    """
    fixed = None if runtime_class is None else runtime_class.overhead.podFixed
    if not fixed:
        if spec.overhead:
            raise Rejected(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
            )
    else:
        same = {key: codec.to_dict(value) for key, value in spec.overhead.items()} == {
            key: codec.to_dict(value) for key, value in fixed.items()
        }
        if spec.overhead and not same:
            raise Rejected("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
        for name, value in fixed.items():
            spec.overhead[name].CopyFrom(value)
    if runtime_class is not None and runtime_class.HasField("scheduling"):
        _use_places(spec, runtime_class.scheduling)


def _use_places(spec: PodSpec, scheduling: node_v1.Scheduling) -> None:
    for key in sorted(scheduling.nodeSelector):
        value = scheduling.nodeSelector[key]
        if key in spec.nodeSelector and spec.nodeSelector[key] != value:
            raise Rejected(
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {spec.nodeSelector[key]}"
            )
        spec.nodeSelector[key] = value
    for toleration in scheduling.tolerations:
        if toleration not in spec.tolerations:
            spec.tolerations.add().CopyFrom(toleration)
