"""Validation of storage.k8s.io: classes, drivers, nodes' drivers, capacities and attachments.

Counterpart: kubernetes pkg/apis/storage/validation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from podyard.api import codec, names, quantity
from podyard.api.errors import duplicate, forbidden, invalid, not_supported, required, too_long
from podyard.api.types import Message, Quantity, storage_v1
from podyard.api.validation_meta import (
    IMMUTABLE,
    Causes,
    Rules,
    each,
    go_struct,
    immutable,
    label_name,
    label_selector,
    object_meta,
    rules,
)
from podyard.api.validation_volumes import MAX_DRIVER_NAME, driver_name

_MAX_PARAMETERS = 512
_MAX_PARAMETERS_BYTES = 256 * 1024
_MAX_NODE_ID_BYTES = 256
_MAX_ATTACHED_BYTES = 256 * 1024
_RECLAIM = ("Delete", "Retain")
_BINDING = ("Immediate", "WaitForFirstConsumer")
_GROUP_POLICIES = ("File", "None", "ReadWriteOnceWithFSType")
_LIFECYCLES = ("Ephemeral", "Persistent")
_MIN_TOKEN_S, _MAX_TOKEN_S = 600, 1 << 32
_MIN_UPDATE_PERIOD_S = 10


def _cluster_scoped(obj: Any) -> Causes:
    return object_meta(obj.metadata, namespaced=False, name_problems=names.dns_subdomain_problems)


def storage_class(obj: storage_v1.StorageClass) -> Causes:
    """A class: who makes volumes, how and when."""
    causes = _cluster_scoped(obj)
    if not obj.provisioner:
        causes.append(required("provisioner"))
    else:
        causes += each("provisioner", obj.provisioner, names.qualified_name_problems(obj.provisioner.lower()))
    causes += _parameters(obj.parameters, "parameters", empty_fine=True)
    if obj.HasField("reclaimPolicy") and obj.reclaimPolicy not in _RECLAIM:
        causes.append(not_supported("reclaimPolicy", obj.reclaimPolicy, _RECLAIM))
    if not obj.HasField("volumeBindingMode"):
        causes.append(required("volumeBindingMode"))
    elif obj.volumeBindingMode not in _BINDING:
        causes.append(not_supported("volumeBindingMode", obj.volumeBindingMode, _BINDING))
    return causes + _topologies(obj.allowedTopologies, "allowedTopologies")


def _parameters(values: Mapping[str, str], path: str, *, empty_fine: bool) -> Causes:
    if not values and not empty_fine:
        return [required(path, "must contain at least one key/value pair")]
    if len(values) > _MAX_PARAMETERS:
        return [too_long(path, _MAX_PARAMETERS)]
    causes: Causes = []
    size = 0
    for key, value in values.items():
        if not key:
            causes.append(invalid(path, key, "field can not be empty."))
        size += len(key.encode()) + len(value.encode())
    if size > _MAX_PARAMETERS_BYTES:
        causes.append(too_long(path, _MAX_PARAMETERS_BYTES))
    return causes


def _topologies(terms: Sequence[Any], path: str) -> Causes:
    causes: Causes = []
    for index, term in enumerate(terms):
        seen: set[str] = set()
        for position, item in enumerate(term.matchLabelExpressions):
            at = f"{path}[{index}].matchLabelExpressions[{position}]"
            if not item.values:
                causes.append(required(f"{at}.values"))
            values: set[str] = set()
            for number, value in enumerate(item.values):
                if value in values:
                    causes.append(duplicate(f"{at}.values[{number}]", value))
                values.add(value)
            causes += label_name(item.key, f"{at}.key")
            if item.key in seen:
                causes.append(duplicate(f"{at}.key", item.key))
            seen.add(item.key)
    return causes


def _class_stays(new: storage_v1.StorageClass, old: storage_v1.StorageClass) -> Causes:
    causes = immutable("parameters", dict(new.parameters), dict(old.parameters))
    for name in ("provisioner", "reclaimPolicy", "volumeBindingMode"):
        causes += immutable(name, getattr(new, name), getattr(old, name))
    return causes


def attributes_class(obj: storage_v1.VolumeAttributesClass) -> Causes:
    """Parameters of volumes that may be changed later."""
    causes = _cluster_scoped(obj) + driver_name(obj.driverName, "driverName")
    return causes + _parameters(obj.parameters, "parameters", empty_fine=False)


def _attributes_stay(new: storage_v1.VolumeAttributesClass, old: storage_v1.VolumeAttributesClass) -> Causes:
    causes = immutable("driverName", new.driverName, old.driverName)
    return causes + immutable("parameters", dict(new.parameters), dict(old.parameters))


def volume_attachment(obj: storage_v1.VolumeAttachment) -> Causes:
    """Which volume is to be at which node, by whom."""
    causes = _cluster_scoped(obj)
    spec = obj.spec
    causes += driver_name(spec.attacher, "spec.attacher")
    has_inline, has_name = (
        spec.source.HasField("inlineVolumeSpec"),
        spec.source.HasField("persistentVolumeName"),
    )
    path = "spec.source"
    if not has_inline and not has_name:
        causes.append(required(path, "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
    elif has_inline and has_name:
        detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
        causes.append(forbidden(path, detail))
    elif has_name:
        at, name = f"{path}.persistentVolumeName", spec.source.persistentVolumeName
        causes += (
            each(at, name, names.dns_subdomain_problems(name))
            if name
            else [required(at, "must specify non empty persistentVolumeName")]
        )
    at = "spec.nodeName"
    causes += each(at, spec.nodeName, names.dns_subdomain_problems(spec.nodeName))
    return causes + _attachment_status(obj, obj)


def _attachment_status(new: storage_v1.VolumeAttachment, old: storage_v1.VolumeAttachment) -> Causes:
    size = sum(len(key) + len(value) for key, value in new.status.attachmentMetadata.items())
    if size > _MAX_ATTACHED_BYTES:
        return [too_long("status.attachmentMetadata", _MAX_ATTACHED_BYTES)]
    return []


def _attachment_stays(new: storage_v1.VolumeAttachment, old: storage_v1.VolumeAttachment) -> Causes:
    if codec.same(new.spec, old.spec):
        return []
    return [invalid("spec", go_struct(new.spec), IMMUTABLE)]


def csi_driver(obj: storage_v1.CSIDriver) -> Causes:
    """What a driver can do."""
    causes = object_meta(obj.metadata, namespaced=False, name_problems=_driver_name_problems)
    spec = obj.spec
    for name in ("attachRequired", "podInfoOnMount", "storageCapacity"):
        if not spec.HasField(name):
            causes.append(required(f"spec.{name}"))
    if spec.fsGroupPolicy not in _GROUP_POLICIES:
        causes.append(not_supported("spec.fsGroupPolicy", spec.fsGroupPolicy, _GROUP_POLICIES))
    seen: set[str] = set()
    for index, request in enumerate(spec.tokenRequests):
        at = f"spec.tokenRequests[{index}]"
        if request.audience in seen:
            causes.append(duplicate(f"{at}.audience", request.audience))
        seen.add(request.audience)
        if request.HasField("expirationSeconds"):
            causes += _expiration(request.expirationSeconds, f"{at}.expirationSeconds")
    for mode in spec.volumeLifecycleModes:
        if mode not in _LIFECYCLES:
            causes.append(not_supported("spec.volumeLifecycleModes", mode, _LIFECYCLES))
    period_s = spec.nodeAllocatableUpdatePeriodSeconds
    if spec.HasField("nodeAllocatableUpdatePeriodSeconds") and period_s < _MIN_UPDATE_PERIOD_S:
        detail = f"must be greater than or equal to {_MIN_UPDATE_PERIOD_S} seconds"
        causes.append(invalid("spec.nodeAllocatableUpdatePeriodSeconds", period_s, detail))
    if spec.serviceAccountTokenInSecrets and not spec.tokenRequests:
        detail = "can only be set when tokenRequests is specified"
        causes.append(invalid("spec.serviceAccountTokenInSecrets", True, detail))
    return causes


def _driver_name_problems(name: str) -> list[str]:
    if len(name) > MAX_DRIVER_NAME:
        return [f"must be no more than {MAX_DRIVER_NAME} bytes"]
    return names.dns_subdomain_problems(name.lower())


def _expiration(seconds: int, path: str) -> Causes:
    if seconds < _MIN_TOKEN_S:
        return [invalid(path, seconds, "may not specify a duration less than 10 minutes")]
    if seconds > _MAX_TOKEN_S:
        return [invalid(path, seconds, "may not specify a duration larger than 2^32 seconds")]
    return []


def _driver_stays(new: storage_v1.CSIDriver, old: storage_v1.CSIDriver) -> Causes:
    causes: Causes = []
    for name in ("attachRequired", "fsGroupPolicy"):
        causes += immutable(f"spec.{name}", getattr(new.spec, name), getattr(old.spec, name))
    before, after = list(old.spec.volumeLifecycleModes), list(new.spec.volumeLifecycleModes)
    return causes + immutable("spec.volumeLifecycleModes", after, before)


def csi_node(obj: storage_v1.CSINode) -> Causes:
    """The drivers of a node."""
    causes = _cluster_scoped(obj)
    seen: set[str] = set()
    for index, driver in enumerate(obj.spec.drivers):
        at = f"spec.drivers[{index}]"
        causes += driver_name(driver.name, f"{at}.name")
        if driver.name in seen:
            causes.append(duplicate(f"{at}.name", driver.name))
        seen.add(driver.name)
        if not driver.nodeID:
            causes.append(required(f"{at}.nodeID"))
        elif len(driver.nodeID.encode()) > _MAX_NODE_ID_BYTES:
            detail = f"must be {_MAX_NODE_ID_BYTES} characters or less"
            causes.append(invalid(f"{at}.nodeID", driver.nodeID, detail))
        if driver.allocatable.HasField("count") and driver.allocatable.count < 0:
            detail = "must be greater than or equal to 0"
            causes.append(invalid(f"{at}.allocatable.count", driver.allocatable.count, detail))
        keys: set[str] = set()
        for key in driver.topologyKeys:
            if not key:
                causes.append(required(f"{at}.topologyKeys"))
            if key in keys:
                causes.append(duplicate(f"{at}.topologyKeys", key))
            keys.add(key)
            causes += label_name(key, f"{at}.topologyKeys")
    return causes


def _node_drivers_stay(new: storage_v1.CSINode, old: storage_v1.CSINode) -> Causes:
    before = {driver.name: driver for driver in old.spec.drivers}
    causes: Causes = []
    for index, driver in enumerate(new.spec.drivers):
        known = before.get(driver.name)
        if known is None:
            continue
        same = (driver.nodeID, list(driver.topologyKeys)) == (known.nodeID, list(known.topologyKeys))
        if not same:
            causes.append(invalid(f"spec.drivers[{index}]", go_struct(driver), IMMUTABLE))
    return causes


def storage_capacity(obj: storage_v1.CSIStorageCapacity) -> Causes:
    """How much of a class is left in a part of the cluster."""
    causes = object_meta(obj.metadata, namespaced=True, name_problems=names.dns_subdomain_problems)
    if obj.HasField("nodeTopology"):
        causes += label_selector(obj.nodeTopology, "nodeTopology")
    name = obj.storageClassName
    if not name:
        causes.append(required("storageClassName"))
    else:
        causes += each("storageClassName", name, names.dns_subdomain_problems(name))
    for field in ("capacity", "maximumVolumeSize"):
        if obj.HasField(field):
            causes += _not_negative(getattr(obj, field), field)
    return causes


def _not_negative(value: Quantity, path: str) -> Causes:
    try:
        amount = quantity.of(value)
    except quantity.QuantityError as error:
        return [invalid(path, value.string, str(error))]
    if amount.nanos < 0:
        return [invalid(path, str(amount), "must be greater than or equal to 0")]
    return []


def _capacity_stays(new: storage_v1.CSIStorageCapacity, old: storage_v1.CSIStorageCapacity) -> Causes:
    causes: Causes = []
    if not codec.same(new.nodeTopology, old.nodeTopology):
        causes.append(invalid("nodeTopology", go_struct(new.nodeTopology), IMMUTABLE))
    return causes + immutable("storageClassName", new.storageClassName, old.storageClassName)


RULES: Mapping[type[Message], Rules] = {
    storage_v1.CSIDriver: rules(csi_driver, _driver_stays),
    storage_v1.CSINode: rules(csi_node, _node_drivers_stay),
    storage_v1.CSIStorageCapacity: rules(storage_capacity, _capacity_stays),
    storage_v1.StorageClass: rules(storage_class, _class_stays),
    storage_v1.VolumeAttachment: rules(volume_attachment, _attachment_stays, status=_attachment_status),
    storage_v1.VolumeAttributesClass: rules(attributes_class, _attributes_stay),
}
