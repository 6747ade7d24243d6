"""Classes of storage, ingress and runtime: the default one, and what a pod gets from its own."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.rules import admission
from podyard.api import codec, errors
from podyard.api.types import Pod, core_v1, networking_v1, node_v1, storage_v1
from tests.unit.apiserver.rules.objects import View, made, pod, request

STORAGE = "storageclass.kubernetes.io/is-default-class"
INGRESS = "ingressclass.kubernetes.io/is-default-class"


def marked(kind: Any, name: str, created_s: int, annotation: str = "") -> Any:
    obj = kind(metadata={"name": name, "creationTimestamp": {"seconds": created_s}})
    if annotation:
        obj.metadata.annotations[annotation] = "true"
    return obj


CLASSES = [
    marked(storage_v1.StorageClass, "plain", 9),
    marked(storage_v1.StorageClass, "old", 1, STORAGE),
    marked(storage_v1.StorageClass, "new", 2, "storageclass.beta.kubernetes.io/is-default-class"),
    marked(networking_v1.IngressClass, "b", 1, INGRESS),
    marked(networking_v1.IngressClass, "a", 1, INGRESS),
]


@pytest.mark.parametrize(
    ("kind", "value", "classes", "wanted"),
    [
        (core_v1.PersistentVolumeClaim, {}, CLASSES, {"storageClassName": "new"}),
        (core_v1.PersistentVolumeClaim, {}, CLASSES[:1], {}),
        (
            core_v1.PersistentVolumeClaim,
            {"spec": {"storageClassName": ""}},
            CLASSES,
            {"storageClassName": ""},
        ),
        (
            core_v1.PersistentVolumeClaim,
            {"metadata": {"name": "a", "annotations": {"volume.beta.kubernetes.io/storage-class": "x"}}},
            CLASSES,
            {},
        ),
        (networking_v1.Ingress, {}, CLASSES, {"ingressClassName": "a"}),
        (networking_v1.Ingress, {"spec": {"ingressClassName": "x"}}, CLASSES, {"ingressClassName": "x"}),
        (
            networking_v1.Ingress,
            {"metadata": {"name": "a", "annotations": {"kubernetes.io/ingress.class": "x"}}},
            CLASSES,
            {},
        ),
    ],
)
def test_default_classes(kind: Any, value: Any, classes: list[Any], wanted: dict[str, str]) -> None:
    obj = made(kind, **value)
    admission.admit(request(obj), View(others=classes))
    spec = codec.to_dict(obj)["spec"]
    assert {key: spec[key] for key in ("storageClassName", "ingressClassName") if key in spec} == wanted
    # What is there already stays as it is.
    old = made(kind, **value)
    admission.admit(request(old, admission.UPDATE, old), View(others=classes))
    assert codec.same(old, made(kind, **value))


def runtime_class(**value: Any) -> node_v1.RuntimeClass:
    return codec.from_dict({"metadata": {"name": "fast"}, "handler": "fast", **value}, node_v1.RuntimeClass)


def admitted(classes: list[Any], **spec: Any) -> Pod:
    obj = pod(**spec)
    admission.admit(request(obj), View(others=classes))
    return obj


def test_a_runtime_class_says_what_it_costs_and_where_it_is() -> None:
    fast = runtime_class(
        overhead={"podFixed": {"memory": "64Mi"}},
        scheduling={"nodeSelector": {"kind": "fast"}, "tolerations": [{"key": "fast", "operator": "Exists"}]},
    )
    spec = codec.to_dict(admitted([fast], runtimeClassName="fast", nodeSelector={"a": "b"}))["spec"]
    assert spec["overhead"] == {"memory": "64Mi"}
    assert spec["nodeSelector"] == {"a": "b", "kind": "fast"}
    assert {"key": "fast", "operator": "Exists"} in spec["tolerations"]
    again = admitted([fast], runtimeClassName="fast", overhead={"memory": "64Mi"})
    assert again.spec.overhead["memory"].string == "64Mi"


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        ({}, {"runtimeClassName": "none"}, 'pod rejected: RuntimeClass "none" not found'),
        (
            {},
            {"overhead": {"memory": "1Mi"}},
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
        (
            {"overhead": {"podFixed": {"memory": "64Mi"}}},
            {"runtimeClassName": "fast", "overhead": {"memory": "1Mi"}},
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            {"scheduling": {"nodeSelector": {"kind": "fast"}}},
            {"runtimeClassName": "fast", "nodeSelector": {"kind": "slow"}},
            "conflict: runtimeClass.scheduling.nodeSelector[kind] = fast; pod.spec.nodeSelector[kind] = slow",
        ),
    ],
)
def test_pods_that_do_not_fit_their_runtime_class(value: Any, spec: Any, text: str) -> None:
    with pytest.raises(errors.Forbidden) as refused:
        admitted([runtime_class(**value)], **spec)
    assert refused.value.message == f'pods "a" is forbidden: {text}'
