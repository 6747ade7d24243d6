"""Validation of pods: the spec as a whole, and what may change in it later.

Counterpart: kubernetes pkg/apis/core/validation.
"""

from __future__ import annotations

import re
from typing import Any

from podyard.api import codec, names, quantity
from podyard.api import validation_containers as containers
from podyard.api.errors import (
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from podyard.api.types import Pod, PodSpec, copy_of, core_v1
from podyard.api.validation_meta import (
    Causes,
    difference,
    each,
    go_struct,
    immutable,
    labels,
    non_negative,
    object_meta,
    object_meta_update,
    one_of,
)
from podyard.api.validation_scheduling import affinity, gated_update, tolerations, topology_spread
from podyard.api.validation_volumes import volumes

DNS_POLICIES = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
MAX_NAMESERVERS = 3
MAX_SEARCH_DOMAINS = 32
MAX_SEARCH_CHARS = 2048
MAX_HOSTNAME = 64
MAX_INT32 = 2**31 - 1
_SYSCTL = r"([a-z0-9][-_a-z0-9]*[\./])*[a-z0-9][-_a-z0-9]*"
_MAX_SYSCTL = 253
_MIRROR = "kubernetes.io/config.mirror"
_UPDATE_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)


def pod(obj: Pod) -> Causes:
    """A new pod."""
    causes = _pod(obj)
    if obj.spec.ephemeralContainers:
        causes.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if obj.spec.nodeName and obj.spec.schedulingGates:
        detail = "cannot be set until all schedulingGates have been cleared"
        causes.append(forbidden("spec.nodeName", detail))
    return causes


def _pod(obj: Pod) -> Causes:
    causes = object_meta(obj.metadata, namespaced=True, name_problems=names.dns_subdomain_problems)
    return causes + pod_spec(obj.spec, "spec")


def pod_spec(spec: PodSpec, path: str, *, template: bool = False) -> Causes:
    """A pod's spec, in pods and templates."""
    causes = volumes(spec.volumes, f"{path}.volumes")
    causes += containers.containers(spec, path, template=template)
    causes += one_of(f"{path}.restartPolicy", spec.restartPolicy, containers.RESTART_POLICIES, needed=True)
    causes += one_of(f"{path}.dnsPolicy", spec.dnsPolicy, DNS_POLICIES, needed=True)
    causes += labels(spec.nodeSelector, f"{path}.nodeSelector")
    causes += _security_context(spec, path)
    if spec.HasField("affinity"):
        causes += affinity(spec.affinity, f"{path}.affinity")
    causes += _dns_config(spec, f"{path}.dnsConfig")
    for index, gate in enumerate(spec.readinessGates):
        at = f"{path}.readinessGates[{index}].conditionType"
        causes += each(at, gate.conditionType, names.qualified_name_problems(gate.conditionType))
    causes += _scheduling_gates(spec, f"{path}.schedulingGates")
    causes += topology_spread(spec.topologySpreadConstraints, f"{path}.topologySpreadConstraints")
    causes += _names(spec, path)
    causes += _limits(spec, path)
    causes += tolerations(spec.tolerations, f"{path}.tolerations")
    causes += _host_aliases(spec, f"{path}.hostAliases")
    causes += _pod_resources(spec, f"{path}.resources")
    return causes + _claims(spec, f"{path}.resourceClaims")


def _names(spec: PodSpec, path: str) -> Causes:
    """Fields that name other things."""
    causes: Causes = []
    for field in ("serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName"):
        value = getattr(spec, field)
        if value:
            causes += each(f"{path}.{field}", value, names.dns_subdomain_problems(value))
    for field in ("hostname", "subdomain"):
        value = getattr(spec, field)
        if value:
            causes += each(f"{path}.{field}", value, names.dns_label_problems(value))
    if spec.HasField("hostnameOverride"):
        at = f"{path}.hostnameOverride"
        value = spec.hostnameOverride
        if len(value) > MAX_HOSTNAME:
            causes.append(too_long(at, MAX_HOSTNAME))
        causes += each(at, value, names.dns_subdomain_problems(value))
        if spec.setHostnameAsFQDN or spec.hostNetwork:
            other = "setHostnameAsFQDN" if spec.setHostnameAsFQDN else "hostNetwork"
            causes.append(forbidden(at, f"may not be specified when {other} is true"))
    if spec.HasField("os"):
        causes += one_of(f"{path}.os.name", spec.os.name, ("linux", "windows"), needed=True)
    if spec.HasField("preemptionPolicy"):
        allowed = ("Never", "PreemptLowerPriority")
        if spec.preemptionPolicy not in allowed:
            causes.append(not_supported(f"{path}.preemptionPolicy", spec.preemptionPolicy, allowed))
    return causes


def _limits(spec: PodSpec, path: str) -> Causes:
    causes: Causes = []
    if spec.HasField("activeDeadlineSeconds") and not 1 <= spec.activeDeadlineSeconds <= MAX_INT32:
        detail = f"must be between 1 and {MAX_INT32}, inclusive"
        causes.append(invalid(f"{path}.activeDeadlineSeconds", spec.activeDeadlineSeconds, detail))
    if not spec.HasField("terminationGracePeriodSeconds"):
        causes.append(required(f"{path}.terminationGracePeriodSeconds"))
    return causes


def _scheduling_gates(spec: PodSpec, path: str) -> Causes:
    causes: Causes = []
    seen: set[str] = set()
    for index, gate in enumerate(spec.schedulingGates):
        at = f"{path}[{index}]"
        causes += each(f"{at}.name", gate.name, names.qualified_name_problems(gate.name))
        if gate.name in seen:
            causes.append(duplicate(at, gate.name))
        seen.add(gate.name)
    return causes


def _host_aliases(spec: PodSpec, path: str) -> Causes:
    causes: Causes = []
    for index, alias in enumerate(spec.hostAliases):
        causes += each(f"{path}[{index}].ip", alias.ip, names.ip_problems(alias.ip))
        for at, name in enumerate(alias.hostnames):
            causes += each(f"{path}[{index}].hostnames[{at}]", name, names.dns_subdomain_problems(name))
    return causes


def _dns_config(spec: PodSpec, path: str) -> Causes:
    config = spec.dnsConfig
    alone = spec.dnsPolicy == "None"
    if not spec.HasField("dnsConfig"):
        return [required(path, "must provide `dnsConfig` when `dnsPolicy` is None")] if alone else []
    causes: Causes = []
    if alone and not config.nameservers:
        detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        causes.append(required(f"{path}.nameservers", detail))
    if len(config.nameservers) > MAX_NAMESERVERS:
        detail = f"must not have more than {MAX_NAMESERVERS} nameservers"
        causes.append(invalid(f"{path}.nameservers", list(config.nameservers), detail))
    for index, server in enumerate(config.nameservers):
        causes += each(f"{path}.nameservers[{index}]", server, names.ip_problems(server))
    searches = list(config.searches)
    if len(searches) > MAX_SEARCH_DOMAINS:
        detail = f"must not have more than {MAX_SEARCH_DOMAINS} search paths"
        causes.append(invalid(f"{path}.searches", searches, detail))
    if len(" ".join(searches)) > MAX_SEARCH_CHARS:
        detail = (
            f"must not have more than {MAX_SEARCH_CHARS} characters (including spaces) in the search list"
        )
        causes.append(invalid(f"{path}.searches", searches, detail))
    for index, domain in enumerate(searches):
        bare = domain.removesuffix(".") if domain != "." else "a"
        causes += each(f"{path}.searches[{index}]", domain, names.dns_subdomain_problems(bare))
    for index, option in enumerate(config.options):
        if not option.name:
            causes.append(required(f"{path}.options[{index}]", "must not be empty"))
    return causes


def _security_context(spec: PodSpec, path: str) -> Causes:
    causes: Causes = []
    if spec.hostNetwork:
        causes += containers.host_network_ports(spec, path)
    if spec.HasField("hostUsers") and not spec.hostUsers:
        for name, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
            if getattr(spec, name):
                causes.append(forbidden(f"{path}.{shown}", "when `hostUsers` is false"))
    context, at = spec.securityContext, f"{path}.securityContext"
    if spec.shareProcessNamespace and spec.hostPID:
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        causes.append(invalid(f"{at}.shareProcessNamespace", True, detail))
    if not spec.HasField("securityContext"):
        return causes
    causes += containers.identity(context, at)
    if context.HasField("fsGroup"):
        causes += containers.system_id(context.fsGroup, f"{at}.fsGroup")
    for index, group in enumerate(context.supplementalGroups):
        causes += containers.system_id(group, f"{at}.supplementalGroups[{index}]")
    for name, allowed in (
        ("fsGroupChangePolicy", ("Always", "OnRootMismatch")),
        ("seLinuxChangePolicy", ("MountOption", "Recursive")),
        ("supplementalGroupsPolicy", ("Merge", "Strict")),
    ):
        if context.HasField(name) and getattr(context, name) not in allowed:
            causes.append(not_supported(f"{at}.{name}", getattr(context, name), allowed))
    causes += containers.seccomp(context, at) + containers.app_armor(context, at)
    return causes + _sysctls(context, f"{at}.sysctls")


def _sysctls(context: Any, path: str) -> Causes:
    causes: Causes = []
    seen: set[str] = set()
    for index, item in enumerate(context.sysctls):
        at = f"{path}[{index}].name"
        if not item.name:
            causes.append(required(at))
        elif len(item.name) > _MAX_SYSCTL or not re.fullmatch(_SYSCTL, item.name, re.ASCII):
            detail = f"must have at most {_MAX_SYSCTL} characters and match regex ^{_SYSCTL}$"
            causes.append(invalid(at, item.name, detail))
        elif item.name in seen:
            causes.append(duplicate(at, item.name))
        seen.add(item.name)
    return causes


def _pod_resources(spec: PodSpec, path: str) -> Causes:
    """Resources of the whole pod: no container over them."""
    if not spec.HasField("resources"):
        return []
    own = spec.resources
    causes = containers.resource_requirements(own, (), path)
    if own.claims:
        causes.append(forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level"))
    for name in ("limits", "requests"):
        for resource in sorted(getattr(own, name)):
            if resource not in ("cpu", "memory") and not resource.startswith("hugepages-"):
                causes.append(
                    not_supported(f"{path}.{name}[{resource}]", resource, ("cpu", "hugepages-", "memory"))
                )
    if causes:
        return causes
    asked = quantity.total(container.resources.requests for container in spec.containers)
    for resource, amount in sorted(asked.items()):
        if resource in own.requests and quantity.of(own.requests[resource]).nanos < amount.nanos:
            shown = str(quantity.of(own.requests[resource]))
            detail = f"must be greater than or equal to aggregate container requests of {amount}"
            causes.append(invalid(f"{path}.requests[{resource}]", shown, detail))
    for resource in sorted(own.limits):
        limit = quantity.of(own.limits[resource])
        for container in spec.containers:
            listed = container.resources.limits
            if resource in listed and quantity.of(listed[resource]).nanos > limit.nanos:
                detail = f"must be greater than or equal to {container.name} container limits"
                causes.append(invalid(f"{path}.limits[{resource}]", str(limit), detail))
    return causes


def _claims(spec: PodSpec, path: str) -> Causes:
    causes: Causes = []
    seen: set[str] = set()
    for index, claim in enumerate(spec.resourceClaims):
        at = f"{path}[{index}]"
        if not claim.name:
            causes.append(required(f"{at}.name"))
        elif claim.name in seen:
            causes.append(duplicate(f"{at}.name", claim.name))
        else:
            causes += each(f"{at}.name", claim.name, names.dns_label_problems(claim.name))
        seen.add(claim.name)
        if claim.HasField("resourceClaimName") == claim.HasField("resourceClaimTemplateName"):
            none = not claim.HasField("resourceClaimName")
            detail = (
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
                if none
                else "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            )
            causes.append(invalid(at, go_struct(claim), detail))
    return causes


def pod_update(new: Pod, old: Pod) -> Causes:
    """An update of a pod: images, deadline, tolerations; and gates may go."""
    causes = object_meta_update(new.metadata, old.metadata) + _pod(new) + _mirror_update(new, old)
    for name in ("containers", "initContainers"):
        if len(getattr(new.spec, name)) != len(getattr(old.spec, name)):
            detail = "pod updates may not add or remove containers"
            return [*causes, forbidden(f"spec.{name}", detail)]
    deadline, stop = _deadline_update(new, old)
    causes += deadline
    if stop:
        return causes
    causes += _tolerations_update(new, old)
    causes += _gates_update(new, old)
    if codec.same(new.spec, old.spec):
        return causes
    if old.spec.schedulingGates:
        causes += gated_update(new.spec, old.spec)
    rest = copy_of(new.spec)
    _take_mutable(rest, old)
    if not codec.same(rest, old.spec):
        shown = difference("PodSpec", rest, old.spec)
        causes.append(forbidden("spec", f"{_UPDATE_TEXT}\n{shown}"))
    return causes


def _mirror_update(new: Pod, old: Pod) -> Causes:
    before = old.metadata.annotations.get(_MIRROR)
    if new.metadata.annotations.get(_MIRROR) == before:
        return []
    what = "add" if before is None else "remove or update"
    return [forbidden(f"metadata.annotations[{_MIRROR}]", f"may not {what} mirror pod annotation")]


def _take_mutable(spec: PodSpec, old: Pod) -> None:
    """Puts the old values of all that may change into a copy of the new spec."""
    for name in ("containers", "initContainers"):
        for fresh, stored in zip(getattr(spec, name), getattr(old.spec, name), strict=True):
            fresh.image = stored.image
    spec.ClearField("activeDeadlineSeconds")
    if old.spec.HasField("activeDeadlineSeconds"):
        spec.activeDeadlineSeconds = old.spec.activeDeadlineSeconds
    del spec.tolerations[:]
    spec.tolerations.extend(old.spec.tolerations)
    if old.spec.terminationGracePeriodSeconds < 0 and spec.terminationGracePeriodSeconds == 1:
        spec.terminationGracePeriodSeconds = old.spec.terminationGracePeriodSeconds
    gated = bool(old.spec.schedulingGates)
    del spec.schedulingGates[:]
    spec.schedulingGates.extend(old.spec.schedulingGates)
    if gated:
        # A gated pod may still be narrowed to fewer nodes.
        spec.ClearField("nodeSelector")
        for key, value in old.spec.nodeSelector.items():
            spec.nodeSelector[key] = value
        wanted = spec.affinity.nodeAffinity
        stored_affinity = old.spec.affinity.nodeAffinity
        if spec.affinity.HasField("nodeAffinity") or old.spec.affinity.HasField("nodeAffinity"):
            wanted.CopyFrom(stored_affinity)
            if not old.spec.affinity.HasField("nodeAffinity"):
                spec.affinity.ClearField("nodeAffinity")
        if not old.spec.HasField("affinity") and not spec.affinity.ListFields():
            spec.ClearField("affinity")


def _deadline_update(new: Pod, old: Pod) -> tuple[Causes, bool]:
    """Errors, and whether they end the validation (as upstream)."""
    at = "spec.activeDeadlineSeconds"
    had = old.spec.HasField("activeDeadlineSeconds")
    if new.spec.HasField("activeDeadlineSeconds"):
        value = new.spec.activeDeadlineSeconds
        if not 0 <= value <= MAX_INT32:
            return [invalid(at, value, f"must be between 0 and {MAX_INT32}, inclusive")], True
        if had and old.spec.activeDeadlineSeconds < value:
            return [invalid(at, value, "must be less than or equal to previous value")], True
    elif had:
        return [invalid(at, None, "must not update from a positive integer to nil value")], False
    return [], False


def _tolerations_update(new: Pod, old: Pod) -> Causes:
    """Tolerations are only added, or their seconds changed."""
    fresh = [_without_seconds(item) for item in new.spec.tolerations]
    if any(_without_seconds(item) not in fresh for item in old.spec.tolerations):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        return [forbidden("spec.tolerations", detail)]
    return []


def _without_seconds(item: Any) -> tuple[str, str, str, str]:
    return item.key, item.operator, item.value, item.effect


def _gates_update(new: Pod, old: Pod) -> Causes:
    known = {gate.name for gate in old.spec.schedulingGates}
    causes: Causes = []
    for index, gate in enumerate(new.spec.schedulingGates):
        if gate.name not in known:
            at = f"spec.schedulingGates[{index}].name"
            detail = f"only deletion is allowed, but found new scheduling gate '{gate.name}'"
            causes.append(forbidden(at, detail))
    return causes


def pod_status_update(new: Pod, old: Pod) -> Causes:
    """An update of a pod's status."""
    causes = object_meta_update(new.metadata, old.metadata)
    if new.spec.nodeName != old.spec.nodeName:
        causes.append(forbidden("spec.nodeName", "may not be changed directly"))
    nominated = new.status.nominatedNodeName
    if nominated:
        at = "status.nominatedNodeName"
        causes += each(at, nominated, names.dns_subdomain_problems(nominated))
    if old.status.qosClass:
        causes += immutable("status.qosClass", new.status.qosClass, old.status.qosClass)
    causes += _addresses(new)
    causes += non_negative("status.observedGeneration", new.status.observedGeneration)
    for index, condition in enumerate(new.status.conditions):
        at = f"status.conditions[{index}].observedGeneration"
        causes += non_negative(at, condition.observedGeneration)
    return causes + _restarts(new, old)


def _addresses(obj: Pod) -> Causes:
    causes: Causes = []
    for name in ("podIPs", "hostIPs"):
        listed = [item.ip for item in getattr(obj.status, name)]
        problems: Causes = []
        for index, address in enumerate(listed):
            problems += each(f"status.{name}[{index}]", address, names.ip_problems(address))
        families = [":" in address for address in listed]
        if not problems and (len(listed) > 2 or len(set(families)) != len(families)):
            detail = "may specify no more than one IP for each IP family"
            problems.append(invalid(f"status.{name}", listed, detail))
        causes += problems
    status = obj.status
    if status.hostIPs and status.hostIPs[0].ip != status.hostIP:
        detail = "must be equal to `hostIP`"
        causes.append(invalid("status.hostIPs[0].ip", status.hostIPs[0].ip, detail))
    return causes


def _restarts(new: Pod, old: Pod) -> Causes:
    """A container that must not run again stays terminated."""
    causes: Causes = []
    if new.spec.restartPolicy == "Always":
        return causes
    specs = {container.name: container for container in new.spec.containers}
    fresh = {status.name: status for status in new.status.containerStatuses}
    for index, status in enumerate(old.status.containerStatuses):
        if not status.state.HasField("terminated") or status.name not in fresh:
            continue
        container = specs.get(status.name)
        if container is not None and (container.HasField("restartPolicy") or container.restartPolicyRules):
            continue
        if new.spec.restartPolicy == "OnFailure" and status.state.terminated.exitCode != 0:
            continue
        if not fresh[status.name].state.HasField("terminated"):
            at = f"status.containerStatuses[{index}].state"
            causes.append(forbidden(at, "may not be transitioned to non-terminated state"))
    return causes


def log_options(options: core_v1.PodLogOptions) -> Causes:
    """What is asked of a log.

    Source: pkg/apis/core/validation ValidatePodLogOptions.
    """
    causes = non_negative("tailLines", options.tailLines)
    bounds = ["limitBytes"]
    if options.HasField("sinceSeconds") and options.HasField("sinceTime"):
        causes.append(forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    else:
        bounds.append("sinceSeconds")
    for name in bounds:
        if options.HasField(name) and getattr(options, name) < 1:
            causes.append(invalid(name, getattr(options, name), "must be greater than 0"))
    if options.HasField("stream"):
        # Upstream: PodLogsQuerySplitStreams is alpha, and off.
        causes.append(forbidden("stream", "may not be specified"))
    return causes
