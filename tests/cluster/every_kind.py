"""An object of every kind in a real cluster, as plain data: for whoever makes, lists and changes them."""

from __future__ import annotations

from typing import Any

from podyard.api import codec, resources
from podyard.api.resources import Resource
from tests.unit.apiserver.test_registry_rows import build, name_for

# Made by others too, or about the cluster itself.
LEFT = ("Namespace", "Node", "Event", "Endpoints", "EndpointSlice", "PriorityClass", "IPAddress")


def rows() -> list[Resource]:
    """Kinds of which a test may have an object to itself."""
    return [row for row in resources.RESOURCES if row.kind not in LEFT and row.storage is None]


def makeable() -> list[Resource]:
    """Kinds that a test may make one of: every kind that is stored, but not the cluster's own parts."""
    own = ("Namespace", "Node")
    return [row for row in resources.RESOURCES if row.kind not in own and not row.is_review]


def example(row: Resource, name: str, namespace: str, owner: dict[str, Any] | None = None) -> dict[str, Any]:
    """The row's example as plain data; with an owner what lives in the namespace is owned."""
    obj = build(row, name_for(row, name))
    obj.metadata.labels["test"] = namespace
    obj.metadata.namespace = namespace if row.namespaced else ""
    value = codec.encode_value(obj, row.api_version, row.kind)
    value.pop("status", None)
    if row.namespaced and owner is not None:
        value["metadata"]["ownerReferences"] = [owner]
    if row.kind == "PodDisruptionBudget":
        value["spec"]["selector"] = {"matchLabels": {"nobody": "has-this"}}
    if row.kind == "Event":
        # An event lies where its object is.
        value["regarding" if row.group else "involvedObject"]["namespace"] = namespace
    return value
