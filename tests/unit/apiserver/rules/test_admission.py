"""Admission: what each plugin changes, and what it refuses."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from apiserver.rules import admission, strategy
from podyard.api import codec, errors, resources
from podyard.api.types import (
    ConfigMap,
    Namespace,
    Node,
    Pod,
    PriorityClass,
    ServiceAccount,
    copy_of,
)
from tests.unit.apiserver.rules.objects import NOW_S, View, made, pod, request


def priority_class(name: str, value: int, **more: Any) -> PriorityClass:
    result: PriorityClass = made(PriorityClass, metadata={"name": name}, value=value, **more)
    return result


class TestAdmission:
    def test_a_plain_pod(self) -> None:
        obj = pod()
        admission.admit(request(obj), View())
        assert (obj.spec.serviceAccountName, obj.spec.priority, obj.spec.preemptionPolicy) == (
            "default",
            0,
            "PreemptLowerPriority",
        )
        assert [
            (item.key, item.operator, item.effect, item.tolerationSeconds) for item in obj.spec.tolerations
        ] == [
            ("node.kubernetes.io/not-ready", "Exists", "NoExecute", 300),
            ("node.kubernetes.io/unreachable", "Exists", "NoExecute", 300),
        ]

    def test_tolerations_of_ones_own_stay(self) -> None:
        own = {
            "key": "node.kubernetes.io/unreachable",
            "operator": "Exists",
            "tolerationSeconds": 5,
            "effect": "NoExecute",
        }
        obj = pod(tolerations=[own])
        admission.admit(request(obj), View(), admission.Defaults(not_ready_toleration_s=7))
        assert [(item.key, item.tolerationSeconds) for item in obj.spec.tolerations] == [
            ("node.kubernetes.io/unreachable", 5),
            ("node.kubernetes.io/not-ready", 7),
        ]
        everything = pod(tolerations=[{"operator": "Exists"}])
        admission.admit(request(everything), View())
        assert len(everything.spec.tolerations) == 1

    def test_a_pod_gets_its_accounts_token_and_pull_secrets(self) -> None:
        account = made(ServiceAccount, metadata={"name": "robot"}, imagePullSecrets=[{"name": "pull"}])
        containers = [{"name": "c", "image": "i"}]
        obj = pod(
            serviceAccountName="robot",
            containers=containers,
            initContainers=[{"name": "init", "image": "i"}],
        )
        admission.admit(replace(request(obj), name_suffix="abcde"), View(accounts=[account]))
        (volume,) = obj.spec.volumes
        assert codec.to_dict(volume) == {
            "name": "kube-api-access-abcde",
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {
                        "configMap": {
                            "name": "kube-root-ca.crt",
                            "items": [{"key": "ca.crt", "path": "ca.crt"}],
                        }
                    },
                    {
                        "downwardAPI": {
                            "items": [
                                {
                                    "path": "namespace",
                                    "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                                }
                            ]
                        }
                    },
                ],
                "defaultMode": 420,
            },
        }
        for container in (*obj.spec.containers, *obj.spec.initContainers):
            (mount,) = container.volumeMounts
            assert (mount.name, mount.mountPath, mount.readOnly) == (
                "kube-api-access-abcde",
                "/var/run/secrets/kubernetes.io/serviceaccount",
                True,
            )
        assert [secret.name for secret in obj.spec.imagePullSecrets] == ["pull"]

    def test_a_mount_of_ones_own_stays(self) -> None:
        mount = {"name": "own", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
        obj = pod(
            containers=[{"name": "c", "image": "i", "volumeMounts": [mount]}],
            volumes=[{"name": "own", "emptyDir": {}}],
        )
        admission.admit(request(obj), View())
        assert [volume.name for volume in obj.spec.volumes] == ["own"]
        assert len(obj.spec.containers[0].volumeMounts) == 1

    @pytest.mark.parametrize(
        ("of_pod", "of_account", "mounts"),
        [(None, None, True), (None, False, False), (True, False, True), (False, True, False)],
    )
    def test_the_pod_decides_before_its_account(
        self, of_pod: bool | None, of_account: bool | None, mounts: bool
    ) -> None:
        account = made(ServiceAccount, metadata={"name": "default"})
        obj = pod()
        for decides, value in ((obj.spec, of_pod), (account, of_account)):
            if value is not None:
                decides.automountServiceAccountToken = value
        admission.admit(request(obj), View(accounts=[account]))
        assert bool(obj.spec.volumes) is mounts

    def test_the_account_must_exist(self) -> None:
        text = (
            'pods "a" is forbidden: error looking up service account default/ghost: '
            'serviceaccount "ghost" not found'
        )
        with pytest.raises(errors.Forbidden) as caught:
            admission.admit(request(pod(serviceAccountName="ghost")), View())
        assert caught.value.message == text
        # The default one is on its way.
        with pytest.raises(admission.NotYet):
            admission.admit(request(pod()), View(accounts=[]))

    def test_new_nodes_are_tainted(self) -> None:
        obj = made(Node)
        admission.admit(request(obj), View())
        admission.admit(request(obj), View())
        assert [(taint.key, taint.effect) for taint in obj.spec.taints] == [
            ("node.kubernetes.io/not-ready", "NoSchedule")
        ]

    def test_missing_namespace(self) -> None:
        with pytest.raises(errors.NotFound, match='namespaces "gone" not found'):
            admission.admit(request(pod(), namespace="gone"), View())

    def test_nothing_new_in_a_namespace_that_goes(self) -> None:
        view = View({"default": "Terminating"})
        with pytest.raises(errors.Forbidden) as caught:
            admission.admit(request(made(ConfigMap)), view)
        assert caught.value.message == (
            'configmaps "a" is forbidden: unable to create new content in namespace default because it '
            "is being terminated"
        )
        assert [cause.reason for cause in caught.value.causes] == ["NamespaceTerminating"]
        admission.admit(request(made(ConfigMap), admission.UPDATE, made(ConfigMap)), view)
        admission.admit(request(made(ConfigMap), admission.DELETE), view)

    @pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
    def test_system_namespaces_stay(self, name: str) -> None:
        obj = made(Namespace, metadata={"name": name})
        with pytest.raises(errors.Forbidden, match="this namespace may not be deleted"):
            admission.admit(request(obj, admission.DELETE), View())

    def test_priority_comes_from_the_class(self) -> None:
        view = View(classes=[priority_class("high", 10, preemptionPolicy="Never")])
        obj = pod(priorityClassName="high")
        admission.admit(request(obj), view)
        assert (obj.spec.priority, obj.spec.preemptionPolicy) == (10, "Never")
        with pytest.raises(errors.Forbidden, match="no PriorityClass with name odd was found"):
            admission.admit(request(pod(priorityClassName="odd")), view)
        with pytest.raises(
            errors.Forbidden, match=r"the integer value of priority \(5\) must not be provided"
        ):
            admission.admit(request(pod(priorityClassName="high", priority=5)), view)

    def test_the_default_class(self) -> None:
        view = View(classes=[priority_class("usual", 3, globalDefault=True)])
        obj = pod()
        admission.admit(request(obj), view)
        assert (obj.spec.priorityClassName, obj.spec.priority) == ("usual", 3)
        with pytest.raises(errors.Forbidden, match="PriorityClass usual is already marked as default"):
            admission.admit(request(priority_class("second", 4, globalDefault=True)), view)
        admission.admit(request(view.classes[0], admission.UPDATE, view.classes[0]), view)

    def test_updates_keep_the_priority(self) -> None:
        old, new = pod(), pod()
        admission.admit(request(old), View())
        admission.admit(request(new, admission.UPDATE, old), View())
        assert (new.spec.HasField("priority"), new.spec.preemptionPolicy) == (True, "PreemptLowerPriority")

    def test_plugins_stand_in_upstreams_order(self) -> None:
        order = [
            "NamespaceLifecycle",
            "ServiceAccount",
            "TaintNodesByCondition",
            "Priority",
            "DefaultTolerationSeconds",
            "DefaultStorageClass",
            "RuntimeClass",
            "DefaultIngressClass",
        ]
        assert [name for name, _ in admission.PLUGINS] == order


def test_an_admitted_and_prepared_pod_is_valid_in_any_order_of_fields() -> None:
    """The pipeline's steps fit together: what they make passes validation, and an unchanged update too."""
    rng = random.Random(3)
    row = resources.by_message(Pod)
    for _ in range(20):
        obj = pod(nodeName=rng.choice(["", "n"]), hostNetwork=rng.random() < 0.5)
        obj.metadata.namespace = "default"
        admission.admit(request(obj), View())
        strategy.prepare_create(row, obj, NOW_S)
        assert strategy.validate_create(row, obj) == []
        again = copy_of(obj)
        strategy.prepare_update(row, again, obj, NOW_S)
        assert strategy.validate_update(row, again, obj) == []
        assert codec.same(again, obj)
