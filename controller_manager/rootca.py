"""Every namespace has the cluster's CA in a ConfigMap, for pods that call the API server.

Source: upstream's root CA certificate publisher.
"""

from __future__ import annotations

from typing import Any

from podyard.api.types import ConfigMap, Key, Namespace, copy_of
from podyard.control.actions import Actions, Create, Update
from podyard.control.spec import ControllerSpec
from podyard.control.view import View

NAME = "kube-root-ca.crt"
_ANNOTATION = "kubernetes.io/description"
_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints "
    "such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across "
    "distributions of Kubernetes clusters."
)


def reconcile(view: View, key: Key, *, ca_pem: str) -> Actions:
    """Creates or mends the ConfigMap of a namespace that lives."""
    namespace = view.get(Namespace, key)
    if namespace is None or namespace.metadata.HasField("deletionTimestamp"):
        return []
    present = view.get(ConfigMap, Key(key.name, NAME))
    data = {"ca.crt": ca_pem}
    if present is None:
        metadata = {"name": NAME, "namespace": key.name, "annotations": {_ANNOTATION: _DESCRIPTION}}
        return [Create(ConfigMap(metadata=metadata, data=data))]
    if dict(present.data) == data:
        return []
    wanted = copy_of(present)
    wanted.data.clear()
    wanted.data.update(data)
    return [Update(wanted)]


def _namespaces_of(old: Any, new: Any, view: View) -> list[Key]:
    obj = new if new is not None else old
    return [Key("", obj.metadata.namespace)] if obj.metadata.name == NAME else []


def controller(ca_pem: str) -> ControllerSpec:
    return ControllerSpec(
        name="root-ca-certificate-publisher",
        for_=Namespace,
        reconcile=lambda view, key: reconcile(view, key, ca_pem=ca_pem),
        maps={ConfigMap: _namespaces_of},
    )
