"""Which files ConfigMap, Secret, downwardAPI and projected volumes have.

Counterpart: pkg/volume/{configmap,secret,downwardapi,projected}.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kubelet.podbuild import BuildError, HostFacts, field_value, resource_value
from kubelet.podspec import find_container
from kubelet.tokens import Tokens
from podyard.api.errors import ApiError
from podyard.api.types import ConfigMap, Pod, Secret, Volume

Lookup = Callable[[Any, str, str], Awaitable[Any]]

DEFAULT_MODE = 0o644
# Only its owner may read a token where someone but root has to own it.
_TOKEN_MODE = 0o600


class SourceError(Exception):
    """The files can't be told; the text follows the volume's name in an event."""


@dataclass(frozen=True, slots=True)
class File:
    """One file to be written; `user` owns it, root where None."""

    data: bytes
    mode: int
    user: int | None = None


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the contents come from.

    Attributes:
        tokens: None where no token is to be had.
        host: what resources without a limit fall back to.
    """

    lookup: Lookup
    tokens: Tokens | None
    host: HostFacts


async def files_of(pod: Pod, volume: Volume, sources: Sources) -> dict[str, File] | None:
    """The files of a volume by their path in it; None when it is of a kind without.

    Raises:
        SourceError: something that is not optional is missing, or can't be read.
    """
    source = volume.volumeSource
    try:
        if source.HasField("configMap"):
            name = source.configMap.localObjectReference.name
            return await _config_map(pod, source.configMap, name, _mode(source.configMap), sources)
        if source.HasField("secret"):
            return await _secret(pod, source.secret, source.secret.secretName, _mode(source.secret), sources)
        if source.HasField("downwardAPI"):
            return _downward(pod, source.downwardAPI.items, _mode(source.downwardAPI), sources.host)
        if source.HasField("projected"):
            return await _projected(pod, source.projected, sources)
    except ApiError as error:
        raise SourceError(error.message) from None
    except BuildError as error:
        raise SourceError(str(error)) from None
    return None


async def _projected(pod: Pod, projected: Any, sources: Sources) -> dict[str, File]:
    """All sources' files together; of two of one path the later one wins."""
    mode, files = _mode(projected), dict[str, File]()
    for source in projected.sources:
        if source.HasField("serviceAccountToken"):
            files |= await _token(pod, source.serviceAccountToken, mode, sources.tokens)
        elif source.HasField("configMap"):
            name = source.configMap.localObjectReference.name
            files |= await _config_map(pod, source.configMap, name, mode, sources)
        elif source.HasField("secret"):
            name = source.secret.localObjectReference.name
            files |= await _secret(pod, source.secret, name, mode, sources)
        elif source.HasField("downwardAPI"):
            files |= _downward(pod, source.downwardAPI.items, mode, sources.host)
        else:
            kind = next((field.name for field, _ in source.ListFields()), "none")
            raise SourceError(f"projections of type {kind} are not supported")
    return files


async def _token(pod: Pod, projection: Any, mode: int, tokens: Tokens | None) -> dict[str, File]:
    if tokens is None:
        raise SourceError("failed to fetch token: this node asks for none")
    try:
        token = await tokens.get(pod, projection.audience, projection.expirationSeconds)
    except ApiError as error:
        raise SourceError(f"failed to fetch token: {error.message}") from None
    user = common_user(pod)
    if user is not None or pod.spec.securityContext.HasField("fsGroup"):
        mode = _TOKEN_MODE
    return {projection.path: File(token.encode(), mode, user)}


def common_user(pod: Pod) -> int | None:
    """The user that all containers run as, when all say so and it is one.

    Source: pkg/volume/util FsUserFrom.
    """
    whole, users = pod.spec.securityContext, set[int | None]()
    for container in (*pod.spec.initContainers, *pod.spec.containers):
        own = container.securityContext
        context = own if own.HasField("runAsUser") else whole
        users.add(context.runAsUser if context.HasField("runAsUser") else None)
    return users.pop() if len(users) == 1 else None


async def _config_map(pod: Pod, source: Any, name: str, mode: int, sources: Sources) -> dict[str, File]:
    found = await sources.lookup(ConfigMap, pod.metadata.namespace, name)
    data = None
    if found is not None:
        data = {key: value.encode() for key, value in found.data.items()} | dict(found.binaryData)
    return _chosen(data, source, "configmap", name, mode)


async def _secret(pod: Pod, source: Any, name: str, mode: int, sources: Sources) -> dict[str, File]:
    found = await sources.lookup(Secret, pod.metadata.namespace, name)
    data = dict(found.data) if found is not None else None
    return _chosen(data, source, "secret", name, mode)


def _chosen(
    data: Mapping[str, bytes] | None, source: Any, kind: str, name: str, mode: int
) -> dict[str, File]:
    """Files of a ConfigMap's or Secret's keys; `items` choose and rename."""
    if data is None:
        if source.optional:
            return {}
        raise SourceError(f'{kind} "{name}" not found')
    if not source.items:
        return {key: File(value, mode) for key, value in data.items()}
    chosen = {}
    for item in source.items:
        if item.key not in data:
            if source.optional:
                continue
            what = "configmap references non-existent config key"
            if kind == "secret":
                what = "references non-existent secret key"
            raise SourceError(f"{what}: {item.key}")
        chosen[item.path] = File(data[item.key], item.mode if item.HasField("mode") else mode)
    return chosen


def _downward(pod: Pod, items: Any, mode: int, host: HostFacts) -> dict[str, File]:
    files = {}
    for item in items:
        if item.HasField("fieldRef"):
            # Addresses can't be asked for here: the volume is there before the pod has any.
            text = field_value(pod, item.fieldRef.fieldPath, host, ())
        else:
            reference = item.resourceFieldRef
            container = find_container(pod, reference.containerName)
            if container is None:
                raise SourceError(f"container {reference.containerName} not found")
            text = resource_value(pod, container, reference, host)
        files[item.path] = File(text.encode(), item.mode if item.HasField("mode") else mode)
    return files


def _mode(source: Any) -> int:
    return source.defaultMode if source.HasField("defaultMode") else DEFAULT_MODE
