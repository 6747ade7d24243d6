"""Defaults of storage: volumes, claims, classes and drivers.

Counterpart: kubernetes pkg/apis/{core,storage}/v1 defaults, pkg/api/persistentvolumeclaim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podyard.api.pod_defaults import markers, round_up
from podyard.api.types import Message, core_v1, storage_v1


def persistent_volume(obj: core_v1.PersistentVolume) -> None:
    """Kept when released, a file system, pending at first."""
    spec = obj.spec
    spec.persistentVolumeReclaimPolicy = spec.persistentVolumeReclaimPolicy or "Retain"
    if not spec.HasField("volumeMode"):
        spec.volumeMode = "Filesystem"
    round_up(spec.capacity)
    for _, source in spec.persistentVolumeSource.ListFields():
        markers(source)
    host_path = spec.persistentVolumeSource.hostPath
    if spec.persistentVolumeSource.HasField("hostPath") and not host_path.HasField("type"):
        host_path.type = ""
    obj.status.phase = obj.status.phase or "Pending"


def persistent_volume_claim(obj: core_v1.PersistentVolumeClaim) -> None:
    """A file system, pending at first."""
    claim_spec(obj.spec)
    round_up(obj.status.capacity)
    round_up(obj.status.allocatedResources)
    obj.status.phase = obj.status.phase or "Pending"


def claim_spec(spec: core_v1.PersistentVolumeClaimSpec) -> None:
    """Of claims and of templates of claims."""
    if not spec.HasField("volumeMode"):
        spec.volumeMode = "Filesystem"
    round_up(spec.resources.limits)
    round_up(spec.resources.requests)


def twin_data_sources(spec: core_v1.PersistentVolumeClaimSpec) -> None:
    """The older field and the newer one say the same; where one is given, the other follows."""
    old, new = spec.dataSource, spec.dataSourceRef
    if spec.HasField("dataSource") and not spec.HasField("dataSourceRef"):
        _copy_reference(old, new)
    elif spec.HasField("dataSourceRef") and not spec.HasField("dataSource") and not new.namespace:
        _copy_reference(new, old)


def _copy_reference(source: Any, target: Any) -> None:
    if source.HasField("apiGroup"):
        target.apiGroup = source.apiGroup
    target.kind, target.name = source.kind, source.name


def storage_class(obj: storage_v1.StorageClass) -> None:
    """Volumes go with their claims and are bound at once."""
    if not obj.HasField("reclaimPolicy"):
        obj.reclaimPolicy = "Delete"
    if not obj.HasField("volumeBindingMode"):
        obj.volumeBindingMode = "Immediate"


def csi_driver(obj: storage_v1.CSIDriver) -> None:
    """What a driver does unless it says otherwise."""
    spec = obj.spec
    for name, value in (
        ("attachRequired", True),
        ("podInfoOnMount", False),
        ("storageCapacity", False),
        ("requiresRepublish", False),
        ("seLinuxMount", False),
        ("fsGroupPolicy", "ReadWriteOnceWithFSType"),
    ):
        if not spec.HasField(name):
            setattr(spec, name, value)
    if not spec.volumeLifecycleModes:
        spec.volumeLifecycleModes.append("Persistent")


DEFAULTS: Mapping[type[Message], Callable[[Any], None]] = {
    core_v1.PersistentVolume: persistent_volume,
    core_v1.PersistentVolumeClaim: persistent_volume_claim,
    storage_v1.CSIDriver: csi_driver,
    storage_v1.StorageClass: storage_class,
}
