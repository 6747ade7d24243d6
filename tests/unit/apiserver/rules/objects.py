"""Objects, and a look into the cluster, for tests of the rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from apiserver.rules import admission
from podyard.api import codec, resources
from podyard.api.types import (
    Message,
    Namespace,
    Pod,
    PriorityClass,
    ServiceAccount,
    node_v1,
)

NOW_S = 1_000_000.5


def made(cls: type[Message], **value: Any) -> Any:
    obj = codec.from_dict({"metadata": {"name": "a"}, **value}, cls)
    resources.by_message(cls).defaults(obj)
    return obj


def pod(**spec: Any) -> Pod:
    spec.setdefault("containers", [{"name": "c", "image": "i"}])
    result: Pod = made(Pod, spec=spec)
    return result


@dataclass
class View:
    """A cluster as plain data."""

    namespaces: dict[str, str] = field(default_factory=lambda: {"default": "Active"})
    classes: list[PriorityClass] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)
    accounts: list[ServiceAccount] = field(
        default_factory=lambda: [made(ServiceAccount, metadata={"name": "default"})]
    )

    def service_account(self, namespace: str, name: str) -> ServiceAccount | None:
        return next((item for item in self.accounts if item.metadata.name == name), None)

    def namespace(self, name: str) -> Namespace | None:
        phase = self.namespaces.get(name)
        return None if phase is None else Namespace(metadata={"name": name}, status={"phase": phase})

    def priority_class(self, name: str) -> PriorityClass | None:
        return next((item for item in self.classes if item.metadata.name == name), None)

    def default_priority_classes(self) -> list[PriorityClass]:
        return [item for item in self.classes if item.globalDefault]

    def runtime_class(self, name: str) -> node_v1.RuntimeClass | None:
        found = [item for item in self.all_of(node_v1.RuntimeClass) if item.metadata.name == name]
        return found[0] if found else None

    def all_of(self, kind: type[Message]) -> list[Any]:
        return [item for item in self.others if type(item) is kind]


def request(obj: Any, operation: str = admission.CREATE, old: Any = None, namespace: str = "default") -> Any:
    row = resources.by_message(type(obj))
    where = namespace if row.namespaced else ""
    return admission.Attributes(
        operation, row, where, obj.metadata.name, obj=obj, old=old, name_suffix="x1y2z"
    )
