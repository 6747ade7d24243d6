"""Validation of a pod's volumes and of how containers mount them.

Counterpart: kubernetes pkg/apis/core/validation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from podyard.api import names, quantity
from podyard.api.errors import (
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_long,
)
from podyard.api.types import Volume
from podyard.api.validation_meta import Causes, each

MAX_MODE = 0o777
MIN_TOKEN_S = 600
MAX_TOKEN_S = 1 << 32
MAX_DRIVER_NAME = 63

VOLUME_FIELD_PATHS = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
ENV_FIELD_PATHS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_KNOWN_FIELD_PATHS = frozenset(
    {
        *VOLUME_FIELD_PATHS,
        *ENV_FIELD_PATHS,
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.host",
        "status.phase",
    }
)
_HOST_PATH_TYPES = (
    "",
    "DirectoryOrCreate",
    "Directory",
    "FileOrCreate",
    "File",
    "Socket",
    "CharDevice",
    "BlockDevice",
)
_SUBSCRIPT = re.compile(r"(.+)\['(.*)'\]", re.DOTALL)
_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_CPU_DIVISORS = ("1m", "1")
_SIZE_DIVISORS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")


def volumes(values: Sequence[Volume], path: str) -> Causes:
    """All volumes of a pod."""
    causes: Causes = []
    seen: set[str] = set()
    for index, volume in enumerate(values):
        at = f"{path}[{index}]"
        if not volume.name:
            causes.append(required(f"{at}.name"))
        else:
            causes += each(f"{at}.name", volume.name, names.dns_label_problems(volume.name))
        if volume.name in seen:
            causes.append(duplicate(f"{at}.name", volume.name))
        seen.add(volume.name)
        causes += _source(volume.volumeSource, at)
    return causes


def _source(source: Any, path: str) -> Causes:
    """Exactly one source, and that one well-formed."""
    chosen = [field.name for field, _ in source.ListFields()]
    if not chosen:
        return [required(path, "must specify a volume type")]
    causes: Causes = [
        forbidden(f"{path}.{name}", "may not specify more than 1 volume type") for name in chosen[1:]
    ]
    name = chosen[0]
    check = _SOURCES.get(name)
    if check is not None:
        causes += check(getattr(source, name), f"{path}.{name}")
    return causes


def _empty_dir(source: Any, path: str) -> Causes:
    if not source.HasField("sizeLimit"):
        return []
    try:
        negative = quantity.of(source.sizeLimit).nanos < 0
    except quantity.QuantityError as error:
        return [invalid(f"{path}.sizeLimit", source.sizeLimit.string, str(error))]
    return (
        [forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")]
        if negative
        else []
    )


def _host_path(source: Any, path: str) -> Causes:
    if not source.path:
        return [required(f"{path}.path")]
    causes = _no_backsteps(source.path, f"{path}.path")
    if source.HasField("type") and source.type not in _HOST_PATH_TYPES:
        causes.append(not_supported(f"{path}.type", source.type, _HOST_PATH_TYPES))
    return causes


def _config_map(source: Any, path: str) -> Causes:
    causes = needed(source.localObjectReference.name, f"{path}.name")
    return causes + _mode(source, f"{path}.defaultMode") + _key_paths(source.items, f"{path}.items")


def _secret(source: Any, path: str) -> Causes:
    causes = needed(source.secretName, f"{path}.secretName")
    return causes + _mode(source, f"{path}.defaultMode") + _key_paths(source.items, f"{path}.items")


def _downward_api(source: Any, path: str) -> Causes:
    causes = _mode(source, f"{path}.defaultMode")
    for index, item in enumerate(source.items):
        causes += _downward_item(item, f"{path}.items[{index}]")
    return causes


def _downward_item(item: Any, path: str) -> Causes:
    causes = needed(item.path, f"{path}.path")
    causes += local_non_reserved_path(item.path, f"{path}.path") if item.path else []
    if item.HasField("fieldRef"):
        causes += field_reference(item.fieldRef, f"{path}.fieldRef", VOLUME_FIELD_PATHS)
        if item.HasField("resourceFieldRef"):
            causes.append(
                invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
            )
    elif item.HasField("resourceFieldRef"):
        causes += resource_reference(item.resourceFieldRef, f"{path}.resourceFieldRef", in_volume=True)
    else:
        causes.append(required(path, "one of fieldRef and resourceFieldRef is required"))
    if item.HasField("mode") and not 0 <= item.mode <= MAX_MODE:
        causes.append(invalid(f"{path}.mode", item.mode, _MODE_TEXT))
    return causes


_MODE_TEXT = "must be a number between 0 and 0777 (octal), both inclusive"


def _mode(source: Any, path: str) -> Causes:
    """`defaultMode` of a source."""
    if source.HasField("defaultMode") and not 0 <= source.defaultMode <= MAX_MODE:
        return [invalid(path, source.defaultMode, _MODE_TEXT)]
    return []


def _key_paths(items: Sequence[Any], path: str) -> Causes:
    causes: Causes = []
    for index, item in enumerate(items):
        at = f"{path}[{index}]"
        causes += needed(item.key, f"{at}.key")
        if not item.path:
            causes.append(required(f"{at}.path"))
        else:
            causes += local_non_reserved_path(item.path, f"{at}.path")
        if item.HasField("mode") and not 0 <= item.mode <= MAX_MODE:
            causes.append(invalid(f"{at}.mode", item.mode, _MODE_TEXT))
    return causes


def _projected(source: Any, path: str) -> Causes:
    causes = _mode(source, f"{path}.defaultMode")
    written: set[str] = set()
    for index, item in enumerate(source.sources):
        at = f"{path}.sources[{index}]"
        chosen = [field.name for field, _ in item.ListFields()]
        causes += [
            forbidden(f"{at}.{name}", "may not specify more than 1 volume type") for name in chosen[1:]
        ]
        if not chosen:
            continue
        causes += _projection(item, chosen[0], at)
        for target in _targets(item):
            if target in written:
                causes.append(invalid(path, target, "conflicting duplicate paths"))
            written.add(target)
    return causes


def _projection(item: Any, name: str, path: str) -> Causes:
    chosen, at = getattr(item, name), f"{path}.{name}"
    if name in ("secret", "configMap"):
        causes = needed(chosen.localObjectReference.name, f"{at}.name")
        return causes + _key_paths(chosen.items, f"{at}.items")
    if name == "downwardAPI":
        found: Causes = []
        for index, entry in enumerate(chosen.items):
            found += _downward_item(entry, f"{at}.items[{index}]")
        return found
    if name == "serviceAccountToken":
        causes = []
        expires = chosen.expirationSeconds
        if expires < MIN_TOKEN_S:
            causes.append(
                invalid(f"{at}.expirationSeconds", expires, "may not specify a duration less than 10 minutes")
            )
        if expires > MAX_TOKEN_S:
            causes.append(
                invalid(
                    f"{at}.expirationSeconds", expires, "may not specify a duration larger than 2^32 seconds"
                )
            )
        if not chosen.path:
            causes.append(required(f"{at}.path"))
        else:
            causes += local_non_reserved_path(chosen.path, f"{at}.path")
        return causes
    return []


def _targets(item: Any) -> list[str]:
    if item.HasField("serviceAccountToken"):
        return [item.serviceAccountToken.path]
    for name in ("secret", "configMap", "downwardAPI"):
        if item.HasField(name):
            return [entry.path for entry in getattr(item, name).items]
    return []


def _claim(source: Any, path: str) -> Causes:
    return needed(source.claimName, f"{path}.claimName")


def _nfs(source: Any, path: str) -> Causes:
    causes = needed(source.server, f"{path}.server") + needed(source.path, f"{path}.path")
    if source.path and not source.path.startswith("/"):
        causes.append(invalid(f"{path}.path", source.path, "must be an absolute path"))
    return causes


def _iscsi(source: Any, path: str) -> Causes:
    causes = needed(source.targetPortal, f"{path}.targetPortal") + needed(source.iqn, f"{path}.iqn")
    if not 0 <= source.lun <= 255:
        causes.append(invalid(f"{path}.lun", source.lun, "must be between 0 and 255, inclusive"))
    return causes


def _csi(source: Any, path: str) -> Causes:
    return driver_name(source.driver, f"{path}.driver")


def driver_name(name: str, path: str) -> Causes:
    """The name of a storage driver."""
    if not name:
        return [required(path)]
    if len(name) > MAX_DRIVER_NAME:
        return [too_long(path, MAX_DRIVER_NAME)]
    return each(path, name, names.dns_subdomain_problems(name.lower()))


def local_source(name: str, source: Any, path: str) -> Causes:
    """A source that pods and persistent volumes describe alike: `hostPath`, `nfs` or `iscsi`."""
    return _SOURCES[name](source, path)


def _ephemeral(source: Any, path: str) -> Causes:
    return [] if source.HasField("volumeClaimTemplate") else [required(f"{path}.volumeClaimTemplate")]


def _image(source: Any, path: str) -> Causes:
    causes = needed(source.reference, f"{path}.reference")
    policies = ("Always", "IfNotPresent", "Never")
    if source.pullPolicy and source.pullPolicy not in policies:
        causes.append(not_supported(f"{path}.pullPolicy", source.pullPolicy, policies))
    return causes


_SOURCES = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "configMap": _config_map,
    "secret": _secret,
    "downwardAPI": _downward_api,
    "projected": _projected,
    "persistentVolumeClaim": _claim,
    "nfs": _nfs,
    "iscsi": _iscsi,
    "csi": _csi,
    "ephemeral": _ephemeral,
    "image": _image,
}


def needed(value: Any, path: str) -> Causes:
    """A value that must be given."""
    return [] if value else [required(path)]


def _no_backsteps(path_value: str, path: str) -> Causes:
    return [invalid(path, path_value, "must not contain '..'")] if ".." in path_value.split("/") else []


def local_descending_path(value: str, path: str) -> Causes:
    """A relative path that stays below where it starts."""
    causes: Causes = []
    if value.startswith("/"):
        causes.append(invalid(path, value, "must be a relative path"))
    return causes + _no_backsteps(value, path)


def local_non_reserved_path(value: str, path: str) -> Causes:
    """As above, and not beginning with two dots (the kubelet's own names)."""
    causes = local_descending_path(value, path)
    if value.startswith("..") and not value.startswith("../"):
        causes.append(invalid(path, value, "must not start with '..'"))
    return causes


def field_reference(reference: Any, path: str, allowed: Sequence[str]) -> Causes:
    """A field of the pod in an environment variable or file."""
    at = f"{path}.fieldPath"
    if not reference.apiVersion:
        return [required(f"{path}.apiVersion")]
    if not reference.fieldPath:
        return [required(at)]
    subscripted = _SUBSCRIPT.fullmatch(reference.fieldPath)
    base = subscripted[1] if subscripted else reference.fieldPath
    if base not in _KNOWN_FIELD_PATHS:
        detail = f"error converting fieldPath: field label not supported: {reference.fieldPath}"
        return [invalid(at, reference.fieldPath, detail)]
    if subscripted:
        if base not in ("metadata.annotations", "metadata.labels"):
            return [invalid(path, base, "does not support subscript")]
        key = subscripted[2].lower() if base == "metadata.annotations" else subscripted[2]
        return each(path, key, names.qualified_name_problems(key))
    if reference.fieldPath not in allowed:
        return [not_supported(at, reference.fieldPath, allowed)]
    return []


def resource_reference(reference: Any, path: str, *, in_volume: bool) -> Causes:
    """A container's resource in an environment variable or file."""
    causes: Causes = []
    if in_volume and not reference.containerName:
        return [required(f"{path}.containerName")]
    kind, _, name = reference.resource.partition(".")
    if not reference.resource:
        causes.append(required(f"{path}.resource"))
    elif kind not in ("limits", "requests") or not (name in _RESOURCES or name.startswith("hugepages-")):
        allowed = [f"{kind}.{name}" for kind in ("limits", "requests") for name in _RESOURCES]
        causes.append(not_supported(f"{path}.resource", reference.resource, allowed))
    return causes + _divisor(reference, name, f"{path}.divisor")


def _divisor(reference: Any, resource: str, path: str) -> Causes:
    divisor = reference.divisor.string
    if not divisor or divisor == "0":
        return []
    allowed = _CPU_DIVISORS if resource == "cpu" else _SIZE_DIVISORS
    if divisor in allowed:
        return []
    shown = "1m and 1" if resource == "cpu" else ", ".join(allowed)
    detail = f"only divisor's values {shown} are supported with the {resource} resource"
    return [invalid(path, resource, detail)]


def mounts(container: Any, known: dict[str, Any], path: str) -> Causes:
    """Volume mounts of a container.

    Args:
        known: the pod's volumes by name.
    """
    causes: Causes = []
    paths: set[str] = set()
    for index, mount in enumerate(container.volumeMounts):
        at = f"{path}[{index}]"
        if not mount.name:
            causes.append(required(f"{at}.name"))
        if mount.name not in known:
            causes.append(not_found(f"{at}.name", mount.name))
        if not mount.mountPath:
            causes.append(required(f"{at}.mountPath"))
        if mount.mountPath in paths:
            causes.append(invalid(f"{at}.mountPath", mount.mountPath, "must be unique"))
        paths.add(mount.mountPath)
        # Upstream leaves the index out of these paths.
        if mount.subPath:
            causes += local_descending_path(mount.subPath, f"{path}.subPath")
        if mount.subPathExpr:
            if mount.subPath:
                detail = "subPathExpr and subPath are mutually exclusive"
                causes.append(invalid(f"{at}.subPathExpr", mount.subPathExpr, detail))
            causes += local_descending_path(mount.subPathExpr, f"{path}.subPathExpr")
        causes += _propagation(mount, container, path)
    return causes


def _propagation(mount: Any, container: Any, path: str) -> Causes:
    causes: Causes = []
    at = f"{path}.mountPropagation"
    modes = ("Bidirectional", "HostToContainer", "None")
    if mount.HasField("mountPropagation"):
        if mount.mountPropagation not in modes:
            causes.append(not_supported(at, mount.mountPropagation, modes))
        elif mount.mountPropagation == "Bidirectional" and not container.securityContext.privileged:
            detail = "Bidirectional mount propagation is available only to privileged containers"
            causes.append(forbidden(at, detail))
    if mount.HasField("recursiveReadOnly"):
        at = f"{path}.recursiveReadOnly"
        modes = ("Disabled", "Enabled", "IfPossible")
        if mount.recursiveReadOnly not in modes:
            causes.append(not_supported(at, mount.recursiveReadOnly, modes))
        elif mount.recursiveReadOnly != "Disabled":
            if not mount.readOnly:
                causes.append(forbidden(at, "may only be specified when readOnly is true"))
            if mount.mountPropagation not in ("", "None"):
                causes.append(
                    forbidden(at, "may only be specified when mountPropagation is None or not specified")
                )
    return causes


def devices(container: Any, known: dict[str, Any], path: str) -> Causes:
    """Block devices of a container."""
    causes: Causes = []
    mounted = {mount.name for mount in container.volumeMounts}
    paths: set[str] = set()
    names_seen: set[str] = set()
    for index, device in enumerate(container.volumeDevices):
        at = f"{path}[{index}]"
        if not device.name:
            causes.append(required(f"{at}.name"))
        elif device.name not in known:
            causes.append(not_found(f"{at}.name", device.name))
        else:
            source = known[device.name].volumeSource
            if not (source.HasField("persistentVolumeClaim") or source.HasField("ephemeral")):
                detail = (
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
                )
                causes.append(invalid(f"{at}.name", device.name, detail))
            if device.name in names_seen or device.name in mounted:
                causes.append(invalid(f"{at}.name", device.name, "must be unique"))
        names_seen.add(device.name)
        if not device.devicePath:
            causes.append(required(f"{at}.devicePath"))
        if device.devicePath in paths:
            causes.append(invalid(f"{at}.devicePath", device.devicePath, "must be unique"))
        paths.add(device.devicePath)
        causes += _no_backsteps(device.devicePath, f"{at}.devicePath")
    return causes
