"""The environment of a container: literal values, downward references, ConfigMaps and Secrets.

The lookups are asynchronous (they may ask the API server), the rules are upstream's: later
entries win, a missing reference is an error unless it is optional, invalid names are skipped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from kubelet.podbuild import BuildError, HostFacts, expand, field_value, resource_value
from podyard.api.types import ConfigMap, Container, Pod, Secret

Lookup = Callable[[Any, str, str], Awaitable[Any]]


async def container_env(
    pod: Pod,
    container: Container,
    host: HostFacts,
    pod_ips: tuple[str, ...],
    lookup: Lookup,
    *,
    services: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Variables of a container, in order.

    Args:
        services: those that name Services; references see them, and what the container sets wins.
        lookup: (kind, namespace, name) -> object, None when it does not exist.

    Raises:
        BuildError: something that is not optional is missing.
    """
    env: dict[str, str] = dict(services)
    for source in container.envFrom:
        for name, value in (await _all_of(source, pod, lookup)).items():
            env[source.prefix + name] = value
    for variable in container.env:
        if not variable.HasField("valueFrom"):
            env[variable.name] = expand(variable.value, env)
            continue
        found = await _referenced(variable.valueFrom, pod, container, host, pod_ips, lookup)
        if found is not None:
            env[variable.name] = found
    return env


async def _all_of(source: Any, pod: Pod, lookup: Lookup) -> dict[str, str]:
    namespace = pod.metadata.namespace
    kind: Any
    if source.HasField("configMapRef"):
        reference, kind = source.configMapRef, ConfigMap
    else:
        reference, kind = source.secretRef, Secret
    name = reference.localObjectReference.name
    found = await lookup(kind, namespace, name)
    if found is None:
        if reference.optional:
            return {}
        raise BuildError(_missing(kind, name))
    return {key: _text(value) for key, value in sorted(found.data.items())}


async def _referenced(
    source: Any, pod: Pod, container: Container, host: HostFacts, pod_ips: tuple[str, ...], lookup: Lookup
) -> str | None:
    if source.HasField("fieldRef"):
        return field_value(pod, source.fieldRef.fieldPath, host, pod_ips)
    if source.HasField("resourceFieldRef"):
        return resource_value(pod, container, source.resourceFieldRef, host)
    kind: Any
    if source.HasField("configMapKeyRef"):
        reference, kind = source.configMapKeyRef, ConfigMap
    elif source.HasField("secretKeyRef"):
        reference, kind = source.secretKeyRef, Secret
    else:
        raise BuildError("this kind of valueFrom is not supported on this node")
    name = reference.localObjectReference.name
    found = await lookup(kind, pod.metadata.namespace, name)
    if found is None:
        if reference.optional:
            return None
        raise BuildError(_missing(kind, name))
    if reference.key not in found.data:
        if reference.optional:
            return None
        place = f"{pod.metadata.namespace}/{name}"
        label = "ConfigMap" if kind is ConfigMap else "Secret"
        raise BuildError(f"couldn't find key {reference.key} in {label} {place}")
    return _text(found.data[reference.key])


def _missing(kind: Any, name: str) -> str:
    return f'{"configmap" if kind is ConfigMap else "secret"} "{name}" not found'


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
