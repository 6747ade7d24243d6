"""What upstream warns of in pods that it takes all the same.

Counterpart: kubernetes pkg/api/pod/warnings.go, pkg/api/node/util.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from podyard.api import names, quantity
from podyard.api.quoting import go_quote
from podyard.api.types import ObjectMeta, Pod, PodSpec, PodTemplateSpec

_NODE_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": (
        'deprecated since v1.17; use "topology.kubernetes.io/region" instead'
    ),
    "failure-domain.beta.kubernetes.io/zone": (
        'deprecated since v1.17; use "topology.kubernetes.io/zone" instead'
    ),
    "beta.kubernetes.io/instance-type": (
        'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead'
    ),
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": (
        "deprecated since v1.22; use Taints and Tolerations instead"
    ),
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": (
        'non-functional in v1.16+; use the "priorityClassName" field instead'
    ),
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": (
        'non-functional in v1.11+; use the "sysctls" field instead'
    ),
}
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_SECCOMP = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_VOLUMES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
# Upstream writes this path by its own field's name.
_VOLUME_PATHS = {"storageos": "storageOS"}
_BYTES = ("memory", "ephemeral-storage")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NO_SELECTOR = "a null labelSelector results in matching no pod"
_SURPRISE = "which can result in surprising behavior; a DNS label is recommended"


def pod(obj: Pod) -> list[str]:
    """Warnings of a new pod."""
    said = name(obj.metadata.name, "the Pod's hostname")
    return said + _spec(obj.spec, obj.metadata, "")


def template(value: PodTemplateSpec, path: str) -> list[str]:
    """Warnings of a template of pods, for instance at `spec.template`."""
    return _spec(value.spec, value.metadata, f"{path}.")


def name(value: str, where: str) -> list[str]:
    """A name that ends up in host names and is none; `where` says what it is used in."""
    problems = names.dns_label_problems(value)
    if not problems:
        return []
    return [f"metadata.name: this is used in {where}, {_SURPRISE}: [{' '.join(problems)}]"]


def node_label(key: str) -> str:
    """What is wrong with a node label's key, empty for nothing."""
    return _NODE_LABELS.get(key, "")


def _spec(spec: PodSpec, metadata: ObjectMeta, base: str) -> list[str]:
    """In upstream's order; `base` stands before `spec` and `metadata` in paths."""
    path = f"{base}spec"
    said = _nodes(spec, path) + _annotations(spec, metadata, base) + _volumes(spec, path)
    said += _repeated(spec.hostAliases, "ip", f"{path}.hostAliases")
    said += _repeated(spec.imagePullSecrets, "name", f"{path}.imagePullSecrets")
    said += [
        f'{path}.imagePullSecrets[{index}].name: invalid empty name ""'
        for index, item in enumerate(spec.imagePullSecrets)
        if not item.name
    ]
    said += _fractional(spec.overhead, f"{path}.overhead")
    for container, at in _containers(spec, path):
        key = _SECCOMP_CONTAINER + container.name
        if key in metadata.annotations and not container.securityContext.HasField("seccompProfile"):
            said.append(f"{base}metadata.annotations[{key}]: {_SECCOMP}")
        said += _fractional(container.resources.limits, f"{at}.resources.limits", _BYTES[:1])
        said += _fractional(container.resources.requests, f"{at}.resources.requests", _BYTES[:1])
        said += _fractional(container.resources.limits, f"{at}.resources.limits", _BYTES[1:])
        said += _fractional(container.resources.requests, f"{at}.resources.requests", _BYTES[1:])
        said += _hidden_variables(container, at)
    said += _ports(spec, path)
    if spec.terminationGracePeriodSeconds < 0:
        detail = "must be >= 0; negative values are invalid and will be treated as 1"
        said.append(f"{path}.terminationGracePeriodSeconds: {detail}")
    return said + _affinity(spec, f"{path}.affinity")


def _containers(spec: PodSpec, path: str) -> Iterator[tuple[Any, str]]:
    for part in ("initContainers", "containers", "ephemeralContainers"):
        for index, item in enumerate(getattr(spec, part)):
            yield getattr(item, "ephemeralContainerCommon", item), f"{path}.{part}[{index}]"


def _nodes(spec: PodSpec, path: str) -> list[str]:
    said = [
        f"{path}.nodeSelector[{key}]: {node_label(key)}"
        for key in sorted(spec.nodeSelector)
        if node_label(key)
    ]
    affinity, at = spec.affinity.nodeAffinity, f"{path}.affinity.nodeAffinity"
    for index, term in enumerate(getattr(affinity, _REQUIRED).nodeSelectorTerms):
        said += _node_term(term, f"{at}.{_REQUIRED}.nodeSelectorTerms[{index}]")
    for index, item in enumerate(getattr(affinity, _PREFERRED)):
        said += _node_term(item.preference, f"{at}.{_PREFERRED}[{index}].preference")
    for index, item in enumerate(spec.topologySpreadConstraints):
        at = f"{path}.topologySpreadConstraints[{index}]"
        if node_label(item.topologyKey):
            said.append(f"{at}.topologyKey: {item.topologyKey} is {node_label(item.topologyKey)}")
        if not item.HasField("labelSelector"):
            said.append(f"{at}.labelSelector: {_NO_SELECTOR}")
    return said


def _node_term(term: Any, path: str) -> list[str]:
    return [
        f"{path}.matchExpressions[{index}].key: {item.key} is {node_label(item.key)}"
        for index, item in enumerate(term.matchExpressions)
        if node_label(item.key)
    ]


def _annotations(spec: PodSpec, metadata: ObjectMeta, base: str) -> list[str]:
    at = f"{base}metadata.annotations"
    said = [f"{at}[{key}]: {text}" for key, text in _ANNOTATIONS.items() if key in metadata.annotations]
    if _SECCOMP_POD in metadata.annotations and not spec.securityContext.HasField("seccompProfile"):
        said.append(f"{at}[{_SECCOMP_POD}]: {_SECCOMP}")
    return said


def _volumes(spec: PodSpec, path: str) -> list[str]:
    said: list[str] = []
    for index, volume in enumerate(spec.volumes):
        at = f"{path}.volumes[{index}]"
        source = volume.volumeSource
        for field, text in _VOLUMES.items():
            if source.HasField(field):
                said.append(f"{at}.{_VOLUME_PATHS.get(field, field)}: {text}")
        asked = source.ephemeral.volumeClaimTemplate.spec.resources.requests
        where = f"{at}.ephemeral.volumeClaimTemplate.spec.resources.requests"
        said += _fractional(asked, where, ("storage",))
    return said


def _repeated(items: Any, field: str, path: str) -> list[str]:
    said, seen = [], set()
    for index, item in enumerate(items):
        value = getattr(item, field)
        if value in seen:
            said.append(f"{path}[{index}].{field}: duplicate {field} {go_quote(value)}")
        seen.add(value)
    return said


def _fractional(amounts: Mapping[str, Any], path: str, resources: tuple[str, ...] = _BYTES) -> list[str]:
    said = []
    for resource in resources:
        if resource not in amounts:
            continue
        try:
            amount = quantity.of(amounts[resource])
        except quantity.QuantityError:
            continue  # Validation has refused it.
        if amount.milli % 1000:
            text = f"fractional byte value {go_quote(str(amount))} is invalid, must be an integer"
            said.append(f"{path}[{resource}]: {text}")
    return said


def _hidden_variables(container: Any, path: str) -> list[str]:
    """A second definition is fine only where it builds on the first."""
    said, seen = [], set()
    for index, item in enumerate(container.env):
        reference = f"$({item.name})"
        builds = not item.HasField("valueFrom") and reference in item.value and item.value != reference
        if item.name in seen and not builds:
            text = (
                f"hides previous definition of {go_quote(item.name)}, which may be dropped when using apply"
            )
            said.append(f"{path}.env[{index}]: {text}")
        seen.add(item.name)
    return said


def _ports(spec: PodSpec, path: str) -> list[str]:
    said: list[str] = []
    seen: dict[tuple[int, str], list[tuple[str, Any]]] = {}
    for container, at in _containers(spec, path):
        for index, port in enumerate(container.ports):
            here = f"{at}.ports[{index}]"
            if port.hostIP and not port.hostPort:
                said.append(f"{here}: hostIP set without hostPort: {_go_port(port)}")
            others = seen.setdefault((port.containerPort, port.protocol), [])
            for where, other in others:
                clash = _clash(port, other)
                if clash:
                    said.append(f"{here}: {clash} port definition with {where}")
            others.append((here, port))
    return said


def _clash(port: Any, other: Any) -> str:
    if (port.hostIP, port.hostPort) == (other.hostIP, other.hostPort):
        return "duplicate"
    if not port.hostPort or not other.hostPort:
        return "overlapping"
    if port.hostPort == other.hostPort and bool(port.hostIP) != bool(other.hostIP):
        return "dangerously ambiguous"
    return ""


def _go_port(port: Any) -> str:
    return (
        f"{{Name:{port.name} HostPort:{port.hostPort} ContainerPort:{port.containerPort} "
        f"Protocol:{port.protocol} HostIP:{port.hostIP}}}"
    )


def _affinity(spec: PodSpec, path: str) -> list[str]:
    said = []
    for side in ("podAffinity", "podAntiAffinity"):
        chosen, at = getattr(spec.affinity, side), f"{path}.{side}"
        for index, term in enumerate(getattr(chosen, _REQUIRED)):
            if not term.HasField("labelSelector"):
                said.append(f"{at}.{_REQUIRED}[{index}].labelSelector: {_NO_SELECTOR}")
        for index, item in enumerate(getattr(chosen, _PREFERRED)):
            if not item.podAffinityTerm.HasField("labelSelector"):
                where = f"{at}.{_PREFERRED}[{index}].podAffinityTerm.labelSelector"
                said.append(f"{where}: {_NO_SELECTOR}")
    return said
