"""Every namespace has a ServiceAccount `default`. Source: upstream's service account controller."""

from __future__ import annotations

from typing import Any

from podyard.api.types import Key, Namespace, ServiceAccount
from podyard.control.actions import Actions, Create
from podyard.control.spec import ControllerSpec
from podyard.control.view import View

NAME = "default"


def reconcile(view: View, key: Key) -> Actions:
    """Creates the account of a namespace that lives and has none."""
    namespace = view.get(Namespace, key)
    if namespace is None or namespace.metadata.HasField("deletionTimestamp"):
        return []
    if view.get(ServiceAccount, Key(key.name, NAME)) is not None:
        return []
    return [Create(ServiceAccount(metadata={"name": NAME, "namespace": key.name}))]


def _namespaces_of(old: Any, new: Any, view: View) -> list[Key]:
    obj = new if new is not None else old
    return [Key("", obj.metadata.namespace)] if obj.metadata.name == NAME else []


SERVICE_ACCOUNT = ControllerSpec(
    name="serviceaccount", for_=Namespace, reconcile=reconcile, maps={ServiceAccount: _namespaces_of}
)
