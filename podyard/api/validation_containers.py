"""Validation of containers: environment, ports, probes, hooks, resources, security.

Counterpart: kubernetes pkg/apis/core/validation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from podyard.api import names, quantity
from podyard.api import validation_volumes as volumes
from podyard.api.errors import (
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_many,
)
from podyard.api.types import Container, IntOrString, PodSpec, core_v1
from podyard.api.validation_meta import Causes, each, non_negative, one_of
from podyard.api.validation_node import is_extended, is_overcommittable, resource_amount, resource_name

PROTOCOLS = ("TCP", "UDP", "SCTP")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
RESTART_POLICIES = ("Always", "Never", "OnFailure")
MESSAGE_POLICIES = ("FallbackToLogsOnError", "File")
HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
HOOKS = ("exec", "httpGet", "tcpSocket", "sleep")
MAX_RESTART_RULES = 20
MAX_EXIT_CODES = 255
MAX_ID = 2**31 - 1

AnyContainer = Container | core_v1.EphemeralContainerCommon


def containers(spec: PodSpec, path: str, *, template: bool = False) -> Causes:
    """Containers and init containers of a pod.

    Args:
        template: in a workload's template, where images may be left to others.
    """
    causes: Causes = []
    if not spec.containers:
        causes.append(required(f"{path}.containers"))
    seen: set[str] = set()
    for index, container in enumerate(spec.containers):
        at = f"{path}.containers[{index}]"
        causes += _container(container, spec, at, seen, template=template)
        causes += _hooks_and_probes(container, spec, at)
        causes += _restart(container, at)
    causes += _host_ports(spec.containers, f"{path}.containers")
    for index, container in enumerate(spec.initContainers):
        at = f"{path}.initContainers[{index}]"
        causes += _container(container, spec, at, seen, template=template)
        causes += _init_container(container, spec, at)
        causes += _host_ports([container], f"{path}.initContainers", first=index)
    return causes


def _init_container(container: Container, spec: PodSpec, path: str) -> Causes:
    """Only sidecars are probed and hooked: others end before the pod runs."""
    if container.restartPolicy == "Always":
        causes = _hooks_and_probes(container, spec, path)
        if container.restartPolicyRules:
            causes.append(
                forbidden(f"{path}.restartPolicyRules", "may not be set when restartPolicy is Always")
            )
        return causes
    causes = _restart(container, path)
    for name in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
        if container.HasField(name):
            detail = "may not be set for init containers without restartPolicy=Always"
            causes.append(forbidden(f"{path}.{name}", detail))
    return causes


def _container(container: Any, spec: PodSpec, path: str, seen: set[str], *, template: bool) -> Causes:
    """What holds for every kind of container."""
    causes: Causes = []
    if not container.name:
        causes.append(required(f"{path}.name"))
    else:
        causes += each(f"{path}.name", container.name, names.dns_label_problems(container.name))
    if container.name and container.name in seen:
        causes.append(duplicate(f"{path}.name", container.name))
    seen.add(container.name)
    if not container.image:
        causes.append(required(f"{path}.image"))
    elif not template and container.image != container.image.strip():
        detail = "must not have leading or trailing whitespace"
        causes.append(invalid(f"{path}.image", container.image, detail))
    policy = container.terminationMessagePolicy
    causes += one_of(f"{path}.terminationMessagePolicy", policy, MESSAGE_POLICIES, needed=True)
    causes += one_of(f"{path}.imagePullPolicy", container.imagePullPolicy, PULL_POLICIES, needed=True)
    known = {volume.name: volume for volume in spec.volumes}
    causes += _ports(container.ports, f"{path}.ports")
    causes += _environment(container, known, path)
    causes += volumes.mounts(container, known, f"{path}.volumeMounts")
    causes += volumes.devices(container, known, f"{path}.volumeDevices")
    causes += _resize(container, spec, f"{path}.resizePolicy")
    claims = [claim.name for claim in spec.resourceClaims]
    causes += resource_requirements(container.resources, claims, f"{path}.resources")
    return causes + _security(container, spec, f"{path}.securityContext")


def _ports(ports: Sequence[Any], path: str) -> Causes:
    causes: Causes = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        at = f"{path}[{index}]"
        if port.name:
            problems = names.port_name_problems(port.name)
            causes += each(f"{at}.name", port.name, problems)
            if not problems and port.name in seen:
                causes.append(duplicate(f"{at}.name", port.name))
            seen.add(port.name)
        if not port.containerPort:
            causes.append(required(f"{at}.containerPort"))
        else:
            problems = names.port_number_problems(port.containerPort)
            causes += each(f"{at}.containerPort", port.containerPort, problems)
        if port.hostPort:
            causes += each(f"{at}.hostPort", port.hostPort, names.port_number_problems(port.hostPort))
        causes += one_of(f"{at}.protocol", port.protocol, PROTOCOLS, needed=True)
    return causes


def _host_ports(listed: Sequence[Any], path: str, first: int = 0) -> Causes:
    """No two containers take one port of the host."""
    causes: Causes = []
    taken: set[str] = set()
    for at_container, container in enumerate(listed, start=first):
        for index, port in enumerate(container.ports):
            if not port.hostPort:
                continue
            shown = f"{port.protocol}/{port.hostIP}/{port.hostPort}"
            if shown in taken:
                causes.append(duplicate(f"{path}[{at_container}].ports[{index}].hostPort", shown))
            taken.add(shown)
    return causes


def host_network_ports(spec: PodSpec, path: str) -> Causes:
    """On the host's network a container's port is the host's port."""
    causes: Causes = []
    for index, container in enumerate(spec.containers):
        for at, port in enumerate(container.ports):
            if port.hostPort != port.containerPort:
                where = f"{path}.containers[{index}].ports[{at}].hostPort"
                detail = "must match `containerPort` when `hostNetwork` is true"
                causes.append(invalid(where, port.hostPort, detail))
    return causes


def _environment(container: Any, known: Mapping[str, Any], path: str) -> Causes:
    causes: Causes = []
    for index, variable in enumerate(container.env):
        at = f"{path}.env[{index}]"
        if not variable.name:
            causes.append(required(f"{at}.name"))
        else:
            causes += each(f"{at}.name", variable.name, names.env_name_problems(variable.name))
        if variable.HasField("valueFrom"):
            causes += _value_from(variable, known, f"{at}.valueFrom")
    for index, source in enumerate(container.envFrom):
        at = f"{path}.envFrom[{index}]"
        if source.prefix:
            causes += each(f"{at}.prefix", source.prefix, names.env_prefix_problems(source.prefix))
        chosen = [name for name in ("configMapRef", "secretRef") if source.HasField(name)]
        for name in chosen:
            if not getattr(source, name).localObjectReference.name:
                causes.append(required(f"{at}.{name}.name"))
        # Upstream leaves the index out of this path.
        if not chosen:
            detail = "must specify one of: `configMapRef` or `secretRef`"
            causes.append(invalid(f"{path}.envFrom", "", detail))
        elif len(chosen) > 1:
            detail = "may not have more than one field specified at a time"
            causes.append(invalid(f"{path}.envFrom", "", detail))
    return causes


_VALUE_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")


def _value_from(variable: Any, known: Mapping[str, Any], path: str) -> Causes:
    source = variable.valueFrom
    chosen = [name for name in _VALUE_SOURCES if source.HasField(name)]
    causes: Causes = []
    for name in chosen:
        value, at = getattr(source, name), f"{path}.{name}"
        if name == "fieldRef":
            causes += volumes.field_reference(value, at, volumes.ENV_FIELD_PATHS)
        elif name == "resourceFieldRef":
            causes += volumes.resource_reference(value, at, in_volume=False)
        elif name == "fileKeyRef":
            causes += _file_key(value, known, at)
        elif not value.key:
            causes.append(required(f"{at}.key"))
        else:
            causes += each(f"{at}.key", value.key, names.config_key_problems(value.key))
    if not chosen:
        detail = (
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` "
            "or `fileKeyRef`"
        )
        causes.append(invalid(path, "", detail))
    if variable.value:
        if chosen:
            causes.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(chosen) > 1:
        causes.append(invalid(path, "", "may not have more than one field specified at a time"))
    return causes


def _file_key(value: Any, known: Mapping[str, Any], path: str) -> Causes:
    causes: Causes = []
    if not value.key:
        causes.append(required(f"{path}.key"))
    else:
        causes += each(f"{path}.key", value.key, names.env_name_problems(value.key))
    if not value.volumeName:
        causes.append(required(f"{path}.volumeName"))
    elif value.volumeName not in known:
        causes.append(not_found(f"{path}.volumeName", value.volumeName))
    elif not known[value.volumeName].volumeSource.HasField("emptyDir"):
        detail = "referenced volume must be of type emptyDir"
        causes.append(invalid(f"{path}.volumeName", value.volumeName, detail))
    if not value.path:
        causes.append(required(f"{path}.path"))
    else:
        causes += volumes.local_non_reserved_path(value.path, f"{path}.path")
    return causes


def _hooks_and_probes(container: Container, spec: PodSpec, path: str) -> Causes:
    causes: Causes = []
    grace_s = spec.terminationGracePeriodSeconds
    if container.HasField("lifecycle"):
        for name in ("postStart", "preStop"):
            if container.lifecycle.HasField(name):
                hook = getattr(container.lifecycle, name)
                causes += handler(hook, HOOKS, f"{path}.lifecycle.{name}", grace_s=grace_s)
        if container.lifecycle.HasField("stopSignal") and not spec.os.name:
            detail = "may not be set for containers without specifying OS field"
            causes.append(forbidden(f"{path}.lifecycle.stopSignal", detail))
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.HasField(name):
            causes += _probe(getattr(container, name), name, f"{path}.{name}")
    return causes


def _probe(probe: Any, name: str, path: str) -> Causes:
    causes = handler(probe.handler, HANDLERS, path)
    for field in (
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ):
        causes += non_negative(f"{path}.{field}", getattr(probe, field))
    if probe.HasField("terminationGracePeriodSeconds"):
        at, grace_s = f"{path}.terminationGracePeriodSeconds", probe.terminationGracePeriodSeconds
        if name == "readinessProbe":
            causes.append(invalid(at, grace_s, "must not be set for readinessProbes"))
        elif grace_s <= 0:
            causes.append(invalid(at, grace_s, "must be greater than 0"))
    if name != "readinessProbe" and probe.successThreshold != 1:
        causes.append(invalid(f"{path}.successThreshold", probe.successThreshold, "must be 1"))
    return causes


def handler(value: Any, kinds: Sequence[str], path: str, *, grace_s: int = 0) -> Causes:
    """A probe's or hook's action: exactly one, and well-formed."""
    chosen = [name for name in kinds if value.HasField(name)]
    if not chosen:
        return [required(path, "must specify a handler type")]
    causes: Causes = [
        forbidden(f"{path}.{name}", "may not specify more than 1 handler type") for name in chosen[1:]
    ]
    name = chosen[0]
    action, at = getattr(value, name), f"{path}.{name}"
    if name == "exec":
        return causes if action.command else [*causes, required(f"{at}.command")]
    if name == "httpGet":
        return causes + _http_get(action, at)
    if name == "grpc":
        return causes + each(f"{at}.port", action.port, names.port_number_problems(action.port))
    if name == "tcpSocket":
        return causes + _port(action.port, f"{at}.port")
    if not 0 <= action.seconds <= grace_s:
        detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_s})"
        causes.append(invalid(at, action.seconds, detail))
    return causes


def _http_get(action: Any, path: str) -> Causes:
    causes: Causes = []
    if not action.path:
        causes.append(required(f"{path}.path"))
    causes += _port(action.port, f"{path}.port")
    if action.scheme not in ("HTTP", "HTTPS"):
        causes.append(not_supported(f"{path}.scheme", action.scheme, ("HTTP", "HTTPS")))
    for header in action.httpHeaders:
        causes += each(f"{path}.httpHeaders", header.name, names.http_header_problems(header.name))
    return causes


def _port(value: IntOrString, path: str) -> Causes:
    if value.type == 0:
        return each(path, value.intVal, names.port_number_problems(value.intVal))
    return each(path, value.strVal, names.port_name_problems(value.strVal))


def _restart(container: Container, path: str) -> Causes:
    """A container's own restart policy and rules."""
    causes: Causes = []
    if container.HasField("restartPolicy") and container.restartPolicy not in RESTART_POLICIES:
        causes.append(not_supported(f"{path}.restartPolicy", container.restartPolicy, RESTART_POLICIES))
    rules, at = container.restartPolicyRules, f"{path}.restartPolicyRules"
    if rules and not container.HasField("restartPolicy"):
        detail = "must specify restartPolicy when restart rules are used"
        causes.append(required(f"{path}.restartPolicy", detail))
    if len(rules) > MAX_RESTART_RULES:
        causes.append(too_many(at, len(rules), MAX_RESTART_RULES))
    for index, rule in enumerate(rules):
        where = f"{at}[{index}]"
        actions = ("Restart", "RestartAllContainers")
        if rule.action not in actions:
            causes.append(not_supported(f"{where}.action", rule.action, actions))
        if not rule.HasField("exitCodes"):
            causes.append(required(f"{where}.exitCodes", "must be specified"))
            continue
        if rule.exitCodes.operator not in ("In", "NotIn"):
            operator = rule.exitCodes.operator
            causes.append(not_supported(f"{where}.exitCodes.operator", operator, ("In", "NotIn")))
        if len(rule.exitCodes.values) > MAX_EXIT_CODES:
            count = len(rule.exitCodes.values)
            causes.append(too_many(f"{where}.exitCodes.values", count, MAX_EXIT_CODES))
    return causes


def _resize(container: Any, spec: PodSpec, path: str) -> Causes:
    causes: Causes = []
    seen: set[str] = set()
    for index, item in enumerate(container.resizePolicy):
        if item.resourceName in seen:
            causes.append(duplicate(f"{path}[{index}]", item.resourceName))
        seen.add(item.resourceName)
        if item.resourceName not in ("cpu", "memory"):
            causes.append(not_supported(path, item.resourceName, ("cpu", "memory")))
        allowed = ("NotRequired", "RestartContainer")
        if item.restartPolicy not in allowed:
            causes.append(not_supported(path, item.restartPolicy, allowed))
        elif spec.restartPolicy == "Never" and item.restartPolicy != "NotRequired":
            detail = "must be 'NotRequired' when `restartPolicy` is 'Never'"
            causes.append(invalid(path, item.restartPolicy, detail))
    return causes


def resource_requirements(resources: Any, claims: Sequence[str], path: str) -> Causes:
    """Limits and requests: known names, sane amounts, no request over its limit."""
    causes: Causes = []
    for name in sorted(resources.limits):
        at = f"{path}.limits[{name}]"
        causes += container_resource_name(name, at) + resource_amount(name, resources.limits[name], at)
    for name in sorted(resources.requests):
        at = f"{path}.requests[{name}]"
        problems = resource_amount(name, resources.requests[name], at)
        causes += container_resource_name(name, at) + problems
        if not problems:
            causes += _against_limit(resources, name, path)
    if not causes:
        causes += _hugepages(resources, path)
    seen: set[str] = set()
    for index, claim in enumerate(resources.claims):
        at = f"{path}.claims[{index}]"
        if not claim.name:
            causes.append(required(at))
        elif claim.name in seen:
            causes.append(duplicate(at, claim.name))
        elif claim.name not in claims:
            causes.append(not_found(at, claim.name))
        seen.add(claim.name)
    return causes


def _against_limit(resources: Any, name: str, path: str) -> Causes:
    if name not in resources.limits:
        if is_overcommittable(name):
            return []
        return [required(f"{path}.limits", "Limit must be set for non overcommitable resources")]
    try:
        asked = quantity.of(resources.requests[name])
        limit = quantity.of(resources.limits[name])
    except quantity.QuantityError:
        return []
    if not is_overcommittable(name) and asked.nanos != limit.nanos:
        detail = f"must be equal to {name} limit of {limit}"
        return [invalid(f"{path}.requests", str(asked), detail)]
    if is_overcommittable(name) and asked.nanos > limit.nanos:
        detail = f"must be less than or equal to {name} limit of {limit}"
        return [invalid(f"{path}.requests", str(asked), detail)]
    return []


def _hugepages(resources: Any, path: str) -> Causes:
    listed = {*resources.limits, *resources.requests}
    if any(name.startswith("hugepages-") for name in listed) and not listed & {"cpu", "memory"}:
        return [forbidden(path, "HugePages require cpu or memory")]
    return []


def container_resource_name(name: str, path: str) -> Causes:
    """A resource that a container may ask for."""
    causes = resource_name(name, path)
    if "/" not in name:
        standard = name in ("cpu", "memory", "ephemeral-storage") or name.startswith("hugepages-")
        if not standard:
            causes.append(invalid(path, name, "must be a standard resource for containers"))
    elif "kubernetes.io/" not in name and not is_extended(name):
        causes.append(invalid(path, name, "doesn't follow extended resource name standard"))
    return causes


def _security(container: Any, spec: PodSpec, path: str) -> Causes:
    context = container.securityContext
    if not container.HasField("securityContext"):
        return []
    causes = identity(context, path)
    causes += seccomp(context, path) + app_armor(context, path)
    if context.HasField("procMount"):
        allowed = ("Default", "Unmasked")
        if context.procMount not in allowed:
            causes.append(not_supported(f"{path}.procMount", context.procMount, allowed))
        elif context.procMount == "Unmasked" and (not spec.HasField("hostUsers") or spec.hostUsers):
            detail = "`hostUsers` must be false to use `Unmasked`"
            causes.append(invalid(f"{path}.procMount", context.procMount, detail))
    if context.HasField("allowPrivilegeEscalation") and not context.allowPrivilegeEscalation:
        if context.privileged:
            detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            causes.append(invalid(path, "", detail))
        if "CAP_SYS_ADMIN" in context.capabilities.add:
            detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            causes.append(invalid(path, "", detail))
    return causes


def identity(context: Any, path: str) -> Causes:
    """User and group of a process."""
    causes: Causes = []
    for name in ("runAsUser", "runAsGroup"):
        if context.HasField(name):
            causes += system_id(getattr(context, name), f"{path}.{name}")
    return causes


def system_id(value: int, path: str) -> Causes:
    """A user or group id."""
    if 0 <= value <= MAX_ID:
        return []
    return [invalid(path, value, "must be between 0 and 2147483647, inclusive")]


_PROFILE_TYPES = ("Localhost", "RuntimeDefault", "Unconfined")


def seccomp(context: Any, path: str) -> Causes:
    """A seccomp profile."""
    return _profile(context, "seccompProfile", f"{path}.seccompProfile", "seccomp")


def app_armor(context: Any, path: str) -> Causes:
    """An AppArmor profile."""
    return _profile(context, "appArmorProfile", f"{path}.appArmorProfile", "AppArmor")


def _profile(context: Any, name: str, path: str, what: str) -> Causes:
    if not context.HasField(name):
        return []
    profile = getattr(context, name)
    at = f"{path}.localhostProfile"
    if not profile.type:
        return [
            required(
                f"{path}.type",
                "type is required when appArmorProfile is set"
                if what != "seccomp"
                else f"must be set when {name} is set",
            )
        ]
    if profile.type not in _PROFILE_TYPES:
        return [not_supported(f"{path}.type", profile.type, _PROFILE_TYPES)]
    if profile.type == "Localhost":
        if not profile.localhostProfile:
            return [required(at, f"must be set when {what} type is Localhost")]
        if what == "seccomp":
            return volumes.local_descending_path(profile.localhostProfile, at)
    elif profile.HasField("localhostProfile"):
        return [invalid(at, profile.localhostProfile, f"can only be set when {what} type is Localhost")]
    return []
