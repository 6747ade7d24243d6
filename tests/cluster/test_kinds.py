"""Every kind through the real kubectl: made, shown, owned and collected, and gone with its namespace."""

from __future__ import annotations

import json
import uuid

import pytest

from podyard.api.resources import Resource
from tests.cluster.every_kind import example, rows
from tests.cluster.support import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def left(cluster: Cluster, selected: list[Resource], namespace: str) -> list[str]:
    """`kind/name` of what is there of these kinds with the test's label."""
    names = ",".join(row.qualified for row in selected)
    return cluster.kubectl(
        "get", names, "-n", namespace, "-l", f"test={namespace}", "-o", "name"
    ).stdout.split()


def test_every_kind_is_made_shown_and_collected(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("create", "configmap", "owner", "-n", namespace)
    uid = cluster.get("configmap", "owner", "-n", namespace)["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    objects = [example(row, namespace, namespace, owner) for row in rows()]
    try:
        body = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        made = cluster.kubectl("create", "-f", "-", input=body).stdout.splitlines()
        assert len(made) == len(rows())
        inside = [row for row in rows() if row.namespaced]
        assert len(left(cluster, inside, namespace)) == len(inside)
        shown = cluster.kubectl(
            "get", ",".join(row.qualified for row in rows()), "-n", namespace, "-o", "wide"
        ).stdout
        assert shown.count(namespace) >= len(rows())
        # Nobody owns them any more.
        cluster.kubectl("delete", "configmap", "owner", "-n", namespace)
        cluster.eventually(lambda: not left(cluster, inside, namespace), "everything owned is collected")
    finally:
        outside = ",".join(row.qualified for row in rows() if not row.namespaced)
        cluster.kubectl("delete", outside, "-l", f"test={namespace}", "--wait=false")


def test_a_namespace_takes_every_kind_with_it(cluster: Cluster) -> None:
    name = f"kinds-that-go-{uuid.uuid4().hex[:6]}"
    cluster.kubectl("create", "namespace", name)
    cluster.eventually(
        lambda: cluster.kubectl("get", "serviceaccount", "default", "-n", name, check=False).returncode == 0,
        "the namespace's service account",
    )
    inside = [row for row in rows() if row.namespaced]
    objects = [example(row, name, name) for row in inside]
    cluster.kubectl(
        "create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    )
    cluster.kubectl("delete", "namespace", name, "--wait=true", "--timeout=100s")
    cluster.kubectl("create", "namespace", name)
    try:
        assert left(cluster, inside, name) == []
    finally:
        cluster.kubectl("delete", "namespace", name, "--wait=true", "--timeout=100s")


def test_who_one_is_and_what_one_may(cluster: Cluster) -> None:
    shown = cluster.kubectl("auth", "whoami").stdout.split()
    # What follows is the certificate's fingerprint.
    assert shown[2:7] == [
        "Username",
        "kubernetes-admin",
        "Groups",
        "[system:masters",
        "system:authenticated]",
    ]
    assert cluster.kubectl("auth", "can-i", "create", "deployments.apps").stdout == "yes\n"
    listed = cluster.kubectl("auth", "can-i", "--list").stdout
    assert listed.split("\n")[1].split() == ["*.*", "[]", "[]", "[*]"]
