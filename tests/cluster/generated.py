"""What the clients generated from the OpenAPI document have in common: classes, and methods by kind."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

from podyard.api import resources
from podyard.api.resources import Resource

# A watch that begins with what is there, and says where that ends.
INITIAL_EVENTS: dict[str, Any] = {
    "allow_watch_bookmarks": True,
    "send_initial_events": True,
    "resource_version_match": "NotOlderThan",
}
_LIST = re.compile(r"list_(?:namespaced_)?(.+?)(?:_for_all_namespaces)?")


def listing(api: Any) -> dict[str, str]:
    """What each list method of an API class lists, in the words of its other methods."""
    found = {name: _LIST.fullmatch(name) for name in dir(api) if not name.endswith("_with_http_info")}
    return {name: match[1] for name, match in found.items() if match}


def class_name(row: Resource) -> str:
    """`RbacAuthorizationV1Api` for a kind of rbac.authorization.k8s.io/v1."""
    words = [*(row.group or "core").removesuffix(".k8s.io").split("."), row.version]
    return "".join(word.capitalize() for word in words) + "Api"


class Kind:
    """A client's methods for one kind, called alike. Those of an asynchronous client are awaited."""

    def __init__(self, row: Resource, client: ModuleType, connection: Any) -> None:
        self.row = row
        self.api = getattr(client, class_name(row))(connection)
        nouns = set(listing(self.api).values())
        (self.noun,) = (noun for noun in nouns if noun.replace("_", "") == row.kind.lower())

    def call(self, verb: str, namespace: str, part: str = "", **arguments: Any) -> Any:
        """`read`, `patch` and so on, in the namespace if the kind has any; `part` is such as `_status`."""
        if not self.row.namespaced:
            return getattr(self.api, f"{verb}_{self.noun}{part}")(**arguments)
        method = getattr(self.api, f"{verb}_namespaced_{self.noun}{part}")
        return method(namespace=namespace, **arguments)

    def lists(self) -> dict[str, Callable[..., Any]]:
        """Its list methods by name: of a namespace, of all."""
        nouns = listing(self.api)
        return {name: getattr(self.api, name) for name, noun in nouns.items() if noun == self.noun}

    def complaint(self, answer: Any) -> str | None:
        """What is wrong with the answer of a list method."""
        if (answer.kind, answer.api_version) != (self.row.list_kind, self.row.api_version):
            return f"it is {answer.api_version} {answer.kind}"
        if not answer.items or not answer.metadata.resource_version:
            return "nothing is in it"
        return None


def kinds(client: ModuleType, connection: Any) -> dict[Resource, Kind]:
    """Of every kind that is served."""
    return {row: Kind(row, client, connection) for row in resources.RESOURCES}
