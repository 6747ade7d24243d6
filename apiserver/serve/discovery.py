"""Discovery documents, pure: which groups, versions and resources are served.

Both forms: the plain one, and the aggregated one that newer clients ask for (one request for
all groups).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import orjson

from podyard.api.resources import OFFERED, Resource

AGGREGATED = "APIGroupDiscoveryList"
AGGREGATED_GROUP = "apidiscovery.k8s.io"

# Upstream's order of groups; others follow by name.
_GROUP_ORDER = (
    "",
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
)


def groups(rows: Iterable[Resource] = OFFERED) -> list[str]:
    """Groups served, the core group (empty) first."""
    present = {row.group for row in rows}
    known = [group for group in _GROUP_ORDER if group in present]
    return known + sorted(present - set(known))


def versions(group: str, rows: Iterable[Resource] = OFFERED) -> list[str]:
    """Versions of a group, the preferred one first."""
    return sorted({row.version for row in rows if row.group == group}, reverse=True)


def api_versions(server_address: str) -> dict[str, Any]:
    """`/api`."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    }


def group_list() -> dict[str, Any]:
    """`/apis`."""
    listed = [_group(group) for group in groups() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def group(name: str) -> dict[str, Any] | None:
    """`/apis/GROUP`; None when it is not served."""
    if not name or name not in groups():
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}


def _group(name: str) -> dict[str, Any]:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions(name)]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def resource_list(group_name: str, version: str) -> dict[str, Any] | None:
    """`/api/v1` or `/apis/GROUP/VERSION`; None when it is not served."""
    rows = [row for row in OFFERED if (row.group, row.version) == (group_name, version)]
    if not rows:
        return None
    listed: list[dict[str, Any]] = []
    for row in rows:
        listed.append(_plain(row))
        listed.extend(_plain_subresource(row, name) for name in row.subresources)
    head = {"kind": "APIResourceList", "apiVersion": "v1"} if group_name else {"kind": "APIResourceList"}
    return {**head, "groupVersion": rows[0].api_version, "resources": listed}


def _plain(row: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": row.plural,
        "singularName": row.singular,
        "namespaced": row.namespaced,
        "kind": row.kind,
        "verbs": list(row.verbs),
    }
    if row.short_names:
        entry["shortNames"] = list(row.short_names)
    if row.categories:
        entry["categories"] = list(row.categories)
    if row.storage_version_hash:
        entry["storageVersionHash"] = row.storage_version_hash
    return entry


def _plain_subresource(row: Resource, name: str) -> dict[str, Any]:
    part = row.subresources[name]
    entry: dict[str, Any] = {
        "name": f"{row.plural}/{name}",
        "singularName": "",
        "namespaced": row.namespaced,
        "kind": part.kind,
        "verbs": list(part.verbs),
    }
    if (part.group, part.version) != (row.group, row.version):
        entry |= {"group": part.group, "version": part.version}
    return entry


def aggregated(core: bool) -> dict[str, Any]:
    """`/api` (core) or `/apis` in the aggregated form."""
    names = [name for name in groups() if (name == "") == core]
    items = [
        {
            "metadata": {"name": name, "creationTimestamp": None} if name else {"creationTimestamp": None},
            "versions": [_aggregated_version(name, version) for version in versions(name)],
        }
        for name in names
    ]
    return {"kind": AGGREGATED, "apiVersion": f"{AGGREGATED_GROUP}/v2", "metadata": {}, "items": items}


def _aggregated_version(group_name: str, version: str) -> dict[str, Any]:
    rows = [row for row in OFFERED if (row.group, row.version) == (group_name, version)]
    return {
        "version": version,
        "resources": [_aggregated_resource(row) for row in rows],
        "freshness": "Current",
    }


def _aggregated_resource(row: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": row.plural,
        "responseKind": {"group": row.group, "version": row.version, "kind": row.kind},
        "scope": "Namespaced" if row.namespaced else "Cluster",
        "singularResource": row.singular,
        "verbs": list(row.verbs),
    }
    if row.short_names:
        entry["shortNames"] = list(row.short_names)
    if row.categories:
        entry["categories"] = list(row.categories)
    parts = [
        {
            "subresource": name,
            "responseKind": {"group": part.group, "version": part.version, "kind": part.kind},
            "verbs": list(part.verbs),
        }
        for name, part in row.subresources.items()
    ]
    if parts:
        entry["subresources"] = parts
    return entry


def etag(document: dict[str, Any]) -> str:
    """A document's ETag, in upstream's form."""
    return f'"{hashlib.sha512(orjson.dumps(document)).hexdigest().upper()}"'
