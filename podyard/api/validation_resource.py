"""Validation of resource.k8s.io: device classes, claims, templates of claims, and slices of devices.

CEL expressions are not compiled: there is no CEL yet.

Counterpart: kubernetes pkg/apis/resource/validation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from podyard.api import codec, names
from podyard.api.errors import duplicate, forbidden, invalid, not_supported, required, too_long, too_many
from podyard.api.types import Message, resource_v1
from podyard.api.validation_meta import (
    IMMUTABLE,
    Causes,
    Rules,
    annotation_map,
    each,
    go_struct,
    immutable,
    labels,
    object_meta,
    rules,
)
from podyard.api.validation_scheduling import node_selector
from podyard.api.validation_typed import typed
from podyard.api.validation_volumes import driver_name

_MAX_DEVICES = 128
_MAX_REQUESTS = 32
_MAX_SELECTORS = 32
_MAX_EXPRESSION_BYTES = 10 * 1024
_MAX_POOL_BYTES = 253
_MODES = ("All", "ExactCount")


def device_class(obj: resource_v1.DeviceClass) -> Causes:
    """A named choice of devices."""
    causes = object_meta(obj.metadata, namespaced=False, name_problems=names.dns_subdomain_problems)
    causes += _selectors(obj.spec.selectors, "spec.selectors")
    for index, item in enumerate(obj.spec.config):
        causes += _configuration(item.deviceConfiguration, f"spec.config[{index}]")
    name = obj.spec.extendedResourceName
    if obj.spec.HasField("extendedResourceName"):
        causes += each("spec.extendedResourceName", name, names.qualified_name_problems(name))
    return causes


def _selectors(values: Sequence[Any], path: str) -> Causes:
    causes: Causes = [too_many(path, len(values), _MAX_SELECTORS)] if len(values) > _MAX_SELECTORS else []
    for index, selector in enumerate(values):
        at = f"{path}[{index}].cel"
        if not selector.HasField("cel"):
            causes.append(required(at))
        elif len(selector.cel.expression.encode()) > _MAX_EXPRESSION_BYTES:
            causes.append(too_long(f"{at}.expression", _MAX_EXPRESSION_BYTES))
        elif not selector.cel.expression:
            causes.append(required(f"{at}.expression"))
    return causes


def _configuration(configuration: Any, path: str) -> Causes:
    if not configuration.HasField("opaque"):
        return [required(f"{path}.opaque")]
    opaque = configuration.opaque
    causes = driver_name(opaque.driver, f"{path}.opaque.driver")
    return causes if opaque.parameters.raw else [*causes, required(f"{path}.opaque.parameters")]


def resource_claim(obj: resource_v1.ResourceClaim) -> Causes:
    """A claim on devices."""
    causes = object_meta(obj.metadata, namespaced=True, name_problems=names.dns_subdomain_problems)
    return causes + _claim(obj.spec.devices, "spec.devices")


def _claim(devices: Any, path: str) -> Causes:
    causes: Causes = []
    requests = devices.requests
    if len(requests) > _MAX_REQUESTS:
        causes.append(too_many(f"{path}.requests", len(requests), _MAX_REQUESTS))
    known: set[str] = set()
    for index, request in enumerate(requests):
        at = f"{path}.requests[{index}]"
        causes += _request_name(request.name, f"{at}.name", known)
        causes += _request(request, at, known)
    for index, constraint in enumerate(devices.constraints):
        at = f"{path}.constraints[{index}]"
        causes += _references(constraint.requests, known, f"{at}.requests")
        if not constraint.HasField("matchAttribute") and not constraint.HasField("distinctAttribute"):
            detail = "exactly one of `matchAttribute`, or `distinctAttribute` is required"
            causes.append(required(at, detail))
    for index, item in enumerate(devices.config):
        at = f"{path}.config[{index}]"
        causes += _references(item.requests, known, f"{at}.requests")
        causes += _configuration(item.deviceConfiguration, at)
    return causes


def _request_name(name: str, path: str, known: set[str]) -> Causes:
    if not name:
        return [required(path)]
    causes = each(path, name, names.dns_label_problems(name))
    if name in known:
        causes.append(duplicate(path, name))
    known.add(name)
    return causes


def _request(request: Any, path: str, known: set[str]) -> Causes:
    has_exact, has_first = request.HasField("exactly"), bool(request.firstAvailable)
    if has_exact == has_first:
        detail = "exactly one of `exactly` or `firstAvailable` is required"
        if has_exact:
            return [invalid(path, go_struct(request), f"{detail}, but multiple fields are set")]
        return [required(path, detail)]
    if has_exact:
        return _exact(request.exactly, f"{path}.exactly")
    causes: Causes = []
    for index, item in enumerate(request.firstAvailable):
        at = f"{path}.firstAvailable[{index}]"
        own = f"{request.name}/{item.name}"
        if not item.name:
            causes.append(required(f"{at}.name"))
        else:
            causes += each(f"{at}.name", item.name, names.dns_label_problems(item.name))
            if own in known:
                causes.append(duplicate(f"{at}.name", item.name))
            known.add(own)
        causes += _exact(item, at)
    return causes


def _exact(request: Any, path: str) -> Causes:
    at, name = f"{path}.deviceClassName", request.deviceClassName
    causes = each(at, name, names.dns_subdomain_problems(name)) if name else [required(at)]
    causes += _selectors(request.selectors, f"{path}.selectors")
    mode = request.allocationMode
    if mode == "All":
        if request.count:
            detail = "must not be specified when allocationMode is 'All'"
            causes.append(invalid(f"{path}.count", request.count, detail))
    elif mode == "ExactCount":
        if request.count <= 0:
            causes.append(invalid(f"{path}.count", request.count, "must be greater than zero"))
    else:
        causes.append(not_supported(f"{path}.allocationMode", mode, _MODES))
    for index, item in enumerate(request.tolerations):
        causes += typed(item, f"{path}.tolerations[{index}]")
    return causes


def _references(values: Sequence[str], known: set[str], path: str) -> Causes:
    causes: Causes = []
    seen: set[str] = set()
    for index, name in enumerate(values):
        if name not in known:
            detail = (
                "must be the name of a request in the claim or the name of a request and a subrequest "
                "separated by '/'"
            )
            causes.append(invalid(f"{path}[{index}]", name, detail))
        if name in seen:
            causes.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)
    return causes


def _spec_stays(new: Any, old: Any) -> Causes:
    if codec.same(new.spec, old.spec):
        return []
    return [invalid("spec", go_struct(new.spec), IMMUTABLE)]


def _claim_status(new: resource_v1.ResourceClaim, old: resource_v1.ResourceClaim) -> Causes:
    causes = typed(new.status, "status", skip=("devices",))
    seen: set[str] = set()
    for index, consumer in enumerate(new.status.reservedFor):
        if consumer.uid in seen:
            causes.append(duplicate(f"status.reservedFor[{index}]", consumer.uid))
        seen.add(consumer.uid)
    if new.status.reservedFor and not new.status.HasField("allocation"):
        detail = "may not be specified when `allocated` is not set"
        causes.append(forbidden("status.reservedFor", detail))
    return causes


def claim_template(obj: resource_v1.ResourceClaimTemplate) -> Causes:
    """What a pod's own claim is made from."""
    causes = object_meta(obj.metadata, namespaced=True, name_problems=names.dns_subdomain_problems)
    causes += labels(obj.spec.metadata.labels, "spec.metadata.labels")
    causes += annotation_map(obj.spec.metadata.annotations, "spec.metadata.annotations")
    return causes + _claim(obj.spec.spec.devices, "spec.spec.devices")


def resource_slice(obj: resource_v1.ResourceSlice) -> Causes:
    """Devices of one pool."""
    causes = object_meta(obj.metadata, namespaced=False, name_problems=names.dns_subdomain_problems)
    spec = obj.spec
    causes += driver_name(spec.driver, "spec.driver")
    causes += _pool(spec.pool, "spec.pool")
    chosen = [
        name
        for name in ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
        if spec.HasField(name) and getattr(spec, name)
    ]
    listed = "`nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection`"
    if len(chosen) > 1:
        shown = f"{{{', '.join(f'`{name}`' for name in chosen)}}}"
        causes.append(
            invalid("spec", shown, f"exactly one of {listed} is required, but multiple fields are set")
        )
    elif not chosen and not spec.sharedCounters:
        causes.append(required("spec", f"exactly one of {listed} is required"))
    if spec.HasField("nodeSelector"):
        causes += node_selector(spec.nodeSelector, "spec.nodeSelector")
    if len(spec.devices) > _MAX_DEVICES:
        causes.append(too_many("spec.devices", len(spec.devices), _MAX_DEVICES))
    seen: set[str] = set()
    for index, device in enumerate(spec.devices):
        path = f"spec.devices[{index}]"
        causes += _request_name(device.name, f"{path}.name", seen)
        for number, taint in enumerate(device.taints):
            causes += typed(taint, f"{path}.taints[{number}]")
    return causes


def _pool(pool: Any, path: str) -> Causes:
    causes: Causes = []
    if not pool.name:
        causes.append(required(f"{path}.name"))
    else:
        if len(pool.name) > _MAX_POOL_BYTES:
            causes.append(too_long(f"{path}.name", _MAX_POOL_BYTES))
        for part in pool.name.split("/"):
            causes += each(f"{path}.name", part, names.dns_subdomain_problems(part))
    if pool.resourceSliceCount <= 0:
        causes.append(
            invalid(f"{path}.resourceSliceCount", pool.resourceSliceCount, "must be greater than zero")
        )
    if pool.generation < 0:
        detail = "must be greater than or equal to zero"
        causes.append(invalid(f"{path}.generation", pool.generation, detail))
    return causes


def _slice_stays(new: resource_v1.ResourceSlice, old: resource_v1.ResourceSlice) -> Causes:
    causes = immutable("spec.driver", new.spec.driver, old.spec.driver)
    causes += immutable("spec.pool.name", new.spec.pool.name, old.spec.pool.name)
    return causes + immutable("spec.nodeName", new.spec.nodeName, old.spec.nodeName)


RULES: Mapping[type[Message], Rules] = {
    resource_v1.DeviceClass: rules(device_class),
    resource_v1.ResourceClaim: rules(resource_claim, _spec_stays, status=_claim_status),
    resource_v1.ResourceClaimTemplate: rules(claim_template, _spec_stays),
    resource_v1.ResourceSlice: rules(resource_slice, _slice_stays),
}
