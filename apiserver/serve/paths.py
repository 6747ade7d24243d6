"""URL paths, pure: from method and path to what is asked for (upstream: RequestInfo)."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from podyard.api import resources
from podyard.api.resources import Resource

# Below /namespaces/NAME these are parts of the namespace itself, not resources in it.
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """A path that names a resource, an object or a part of one.

    Attributes:
        rest: what follows a subresource, such as the path of a proxied request.
    """

    row: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""


@dataclass(frozen=True, slots=True)
class GroupPath:
    """`/api`, `/apis`, `/apis/GROUP`, `/api/v1` or `/apis/GROUP/VERSION`."""

    core: bool
    group: str = ""
    version: str = ""


class UnknownResource:
    """A path below a group version that is served, which names nothing in it."""


UNKNOWN_RESOURCE = UnknownResource()
_VERSIONS = frozenset((row.group, row.version) for row in resources.OFFERED)

Path = ResourcePath | GroupPath | UnknownResource


def parse_path(path: str) -> Path | None:
    """What a path names; None when nothing that this server knows.

    Args:
        path: still percent-encoded, beginning with a slash.
    """
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api":
        core, group, rest = True, "", parts[1:]
    elif parts[0] == "apis":
        core, group, rest = False, parts[1] if len(parts) > 1 else "", parts[2:]
    else:
        return None
    if not rest:
        return GroupPath(core, group)
    version, rest = rest[0], rest[1:]
    if not rest:
        return GroupPath(core, group, version)
    if (group, version) not in _VERSIONS:
        return None
    return _resource_path(group, version, rest) or UNKNOWN_RESOURCE


def _resource_path(group: str, version: str, parts: list[str]) -> ResourcePath | None:
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2 and parts[2] not in _NAMESPACE_SUBRESOURCES:
        namespace, parts = parts[1], parts[2:]
    row = resources.find_plural(group, version, parts[0])
    if row is None or (namespace and not row.namespaced):
        return None
    name = parts[1] if len(parts) > 1 else ""
    subresource = parts[2] if len(parts) > 2 else ""
    if row.namespaced and not namespace and name:
        return None
    return ResourcePath(row, namespace, name, subresource, "/".join(parts[3:]))
