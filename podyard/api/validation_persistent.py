"""Validation of PersistentVolumes and PersistentVolumeClaims.

Counterpart: kubernetes pkg/apis/core/validation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from podyard.api import codec, names, quantity
from podyard.api.errors import forbidden, invalid, not_supported, required
from podyard.api.types import Message, Quantity, copy_of, core_v1
from podyard.api.validation_meta import (
    Causes,
    Rules,
    any_status,
    difference,
    each,
    go_struct,
    immutable,
    label_selector,
    object_meta,
    rules,
)
from podyard.api.validation_node import resource_amount
from podyard.api.validation_scheduling import node_selector
from podyard.api.validation_volumes import driver_name, local_source, needed

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")
_RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
_SINGLE_NODE = "ReadWriteOncePod"
# What each kind of volume must say, where nothing more is asked of it.
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "gcePersistentDisk": ("pdName",),
    "awsElasticBlockStore": ("volumeID",),
    "glusterfs": ("endpoints", "path"),
    "rbd": ("monitors", "image"),
    "cinder": ("volumeID",),
    "cephfs": ("monitors",),
    "flexVolume": ("driver",),
    "azureFile": ("secretName", "shareName"),
    "vsphereVolume": ("volumePath",),
    "quobyte": ("registry", "volume"),
    "azureDisk": ("diskName", "diskURI"),
    "photonPersistentDisk": ("pdID",),
    "portworxVolume": ("volumeID",),
    "scaleIO": ("gateway", "system", "volumeName"),
}


def _positive(value: Quantity, path: str) -> Causes:
    try:
        amount = quantity.of(value)
    except quantity.QuantityError as error:
        return [invalid(path, value.string, str(error))]
    return [] if amount.nanos > 0 else [invalid(path, str(amount), "must be greater than zero")]


def _access_modes(modes: Sequence[str], path: str, empty_detail: str) -> Causes:
    causes: Causes = [] if modes else [required(path, empty_detail)]
    for mode in modes:
        if mode not in ACCESS_MODES:
            causes.append(not_supported(path, mode, ACCESS_MODES))
    if _SINGLE_NODE in modes and len(modes) > 1:
        causes.append(forbidden(path, "may not use ReadWriteOncePod with other access modes"))
    return causes


def _class_name(value: str, path: str) -> Causes:
    return each(path, value, names.dns_subdomain_problems(value)) if value else []


def persistent_volume(obj: core_v1.PersistentVolume) -> Causes:
    """A volume: one source, a size, how it may be used and where."""
    causes = object_meta(obj.metadata, namespaced=False, name_problems=names.dns_subdomain_problems)
    spec = obj.spec
    causes += _access_modes(spec.accessModes, "spec.accessModes", "")
    causes += _capacity(spec.capacity)
    policy = spec.persistentVolumeReclaimPolicy
    if policy and policy not in _RECLAIM_POLICIES:
        causes.append(not_supported("spec.persistentVolumeReclaimPolicy", policy, _RECLAIM_POLICIES))
    if spec.HasField("nodeAffinity"):
        at = "spec.nodeAffinity.required"
        if not spec.nodeAffinity.HasField("required"):
            causes.append(required(at, "must specify required node constraints"))
        else:
            causes += node_selector(spec.nodeAffinity.required, at)
    causes += _source(spec)
    if spec.persistentVolumeSource.hostPath.path == "/" and policy == "Recycle":
        detail = "may not be 'recycle' for a hostPath mount of '/'"
        causes.append(forbidden("spec.persistentVolumeReclaimPolicy", detail))
    causes += _class_name(spec.storageClassName, "spec.storageClassName")
    if spec.HasField("volumeMode") and spec.volumeMode not in VOLUME_MODES:
        causes.append(not_supported("spec.volumeMode", spec.volumeMode, VOLUME_MODES))
    if spec.HasField("volumeAttributesClassName"):
        at = "spec.volumeAttributesClassName"
        if not spec.volumeAttributesClassName:
            causes.append(required(at, "an empty string is disallowed"))
        causes += _class_name(spec.volumeAttributesClassName, at)
        if not spec.persistentVolumeSource.HasField("csi"):
            detail = "has to be specified when using volumeAttributesClassName"
            causes.append(required("spec.csi", detail))
    return causes


def _capacity(capacity: Mapping[str, Quantity]) -> Causes:
    path = "spec.capacity"
    if not capacity:
        return [required(path)]
    causes: Causes = []
    if list(capacity) != ["storage"]:
        shown = {name: codec.to_dict(value) for name, value in sorted(capacity.items())}
        causes.append(not_supported(path, shown, ("storage",)))
    for name in sorted(capacity):
        causes += _positive(capacity[name], f"{path}[{name}]")
    return causes


def _source(spec: Any) -> Causes:
    source = spec.persistentVolumeSource
    chosen = [field.name for field, _ in source.ListFields()]
    if not chosen:
        return [required("spec", "must specify a volume type")]
    causes: Causes = [
        forbidden(f"spec.{name}", "may not specify more than 1 volume type") for name in chosen[1:]
    ]
    name = chosen[0]
    value, path = getattr(source, name), f"spec.{name}"
    if name in ("hostPath", "nfs", "iscsi"):
        causes += local_source(name, value, path)
    elif name == "local":
        causes += needed(value.path, f"{path}.path")
        if not spec.HasField("nodeAffinity"):
            causes.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
    elif name == "csi":
        causes += driver_name(value.driver, f"{path}.driver")
        causes += needed(value.volumeHandle, f"{path}.volumeHandle")
    for field in _NEEDED.get(name, ()):
        causes += needed(getattr(value, field), f"{path}.{field}")
    return causes


def _volume_stays(new: core_v1.PersistentVolume, old: core_v1.PersistentVolume) -> Causes:
    causes: Causes = []
    if not codec.same(new.spec.persistentVolumeSource, old.spec.persistentVolumeSource):
        new_source, old_source = new.spec.persistentVolumeSource, old.spec.persistentVolumeSource
        detail = (
            "spec.persistentvolumesource is immutable after creation\n"
            f"{difference('PersistentVolumeSource', new_source, old_source)}"
        )
        causes.append(forbidden("spec.persistentvolumesource", detail))
    causes += immutable("volumeMode", new.spec.volumeMode, old.spec.volumeMode)
    if old.spec.HasField("nodeAffinity") and not codec.same(new.spec.nodeAffinity, old.spec.nodeAffinity):
        shown = go_struct(new.spec.nodeAffinity)
        causes.append(invalid("spec.nodeAffinity", shown, "field is immutable"))
    return causes


def persistent_volume_claim(obj: core_v1.PersistentVolumeClaim) -> Causes:
    """A claim."""
    causes = object_meta(obj.metadata, namespaced=True, name_problems=names.dns_subdomain_problems)
    return causes + claim_spec(obj.spec, "spec")


def claim_spec(spec: core_v1.PersistentVolumeClaimSpec, path: str) -> Causes:
    """What a claim asks for, in claims and templates of claims."""
    causes = _access_modes(spec.accessModes, f"{path}.accessModes", "at least 1 access mode is required")
    causes += label_selector(spec.selector, f"{path}.selector")
    if "storage" not in spec.resources.requests:
        causes.append(required(f"{path}.resources[storage]"))
    else:
        causes += _positive(spec.resources.requests["storage"], f"{path}.resources.requests[storage]")
    causes += _class_name(spec.storageClassName, f"{path}.storageClassName")
    if spec.HasField("volumeMode") and spec.volumeMode not in VOLUME_MODES:
        causes.append(not_supported(f"{path}.volumeMode", spec.volumeMode, VOLUME_MODES))
    for name in ("dataSource", "dataSourceRef"):
        if spec.HasField(name):
            causes += _data_source(getattr(spec, name), f"{path}.{name}")
    if spec.HasField("dataSource") and spec.HasField("dataSourceRef") and not spec.dataSourceRef.namespace:
        one, other = spec.dataSource, spec.dataSourceRef
        if (one.apiGroup, one.kind, one.name) != (other.apiGroup, other.kind, other.name):
            causes.append(invalid(path, f"{path}.dataSource", "must match dataSourceRef"))
    return causes + _class_name(spec.volumeAttributesClassName, f"{path}.volumeAttributesClassName")


def _data_source(source: Any, path: str) -> Causes:
    causes = needed(source.name, f"{path}.name") + needed(source.kind, f"{path}.kind")
    if not source.apiGroup and source.kind != "PersistentVolumeClaim":
        detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        causes.append(invalid(path, source.kind, detail))
    if source.apiGroup:
        at = f"{path}.apiGroup"
        causes += each(at, source.apiGroup, names.dns_subdomain_problems(source.apiGroup))
    return causes


def _claim_stays(new: core_v1.PersistentVolumeClaim, old: core_v1.PersistentVolumeClaim) -> Causes:
    """A bound claim may grow; everything else stays, but for what was left to others to fill in."""
    causes: Causes = []
    allowed, bound = copy_of(new.spec), new.status.phase == "Bound"
    if not old.spec.volumeName:
        allowed.volumeName = old.spec.volumeName
        if not old.spec.HasField("volumeName"):
            allowed.ClearField("volumeName")
    if not old.spec.HasField("storageClassName"):
        allowed.ClearField("storageClassName")
    if bound:
        if "storage" in old.spec.resources.requests:
            allowed.resources.requests["storage"].CopyFrom(old.spec.resources.requests["storage"])
        allowed.ClearField("volumeAttributesClassName")
        if old.spec.HasField("volumeAttributesClassName"):
            allowed.volumeAttributesClassName = old.spec.volumeAttributesClassName
    if not codec.same(allowed, old.spec):
        detail = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for "
            f"bound claims\n{difference('PersistentVolumeClaimSpec', allowed, old.spec)}"
        )
        causes.append(forbidden("spec", detail))
    elif bound:
        causes += _size_shrinks(new, old)
    if old.spec.volumeAttributesClassName and not new.spec.volumeAttributesClassName:
        path = "spec.volumeAttributesClassName"
        detail = "update from non-nil value to nil is forbidden"
        if new.spec.HasField("volumeAttributesClassName"):
            detail = "update from non-nil value to an empty string is forbidden"
        causes.append(forbidden(path, detail))
    return causes + immutable("volumeMode", new.spec.volumeMode, old.spec.volumeMode)


def _size_shrinks(new: core_v1.PersistentVolumeClaim, old: core_v1.PersistentVolumeClaim) -> Causes:
    sizes = []
    for holder in (new.spec.resources.requests, old.spec.resources.requests, new.status.capacity):
        try:
            sizes.append(quantity.of(holder["storage"]).nanos if "storage" in holder else 0)
        except quantity.QuantityError:
            return []  # said of the value itself
    wanted, before, real = sizes
    if wanted >= before or wanted > real:
        return []
    return [forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")]


def _claim_status(new: core_v1.PersistentVolumeClaim, old: core_v1.PersistentVolumeClaim) -> Causes:
    causes: Causes = []
    for name in sorted(new.status.capacity):
        causes += resource_amount(name, new.status.capacity[name], f"status.capacity[{name}]")
    return causes


RULES: Mapping[type[Message], Rules] = {
    core_v1.PersistentVolume: rules(persistent_volume, _volume_stays, status=any_status),
    core_v1.PersistentVolumeClaim: rules(persistent_volume_claim, _claim_stays, status=_claim_status),
}
