"""kubectl on workloads: set, scale, rollout, delete with what they own, wait."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.kubectls import Kubectl
from tests.cluster.samples import pod

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CONTAINER = ".spec.template.spec.containers[0]"


@pytest.fixture(scope="module")
def paper(kubectl: Kubectl) -> str:
    """A Deployment without pods, whose template may change at no cost."""
    kubectl.run("create", "deployment", "paper", "--image=nginx", "--replicas=0")
    return "deployment/paper"


def rolled_out(kubectl: Kubectl, name: str) -> None:
    said = kubectl.run("rollout", "status", f"deployment/{name}", "--timeout=90s")
    assert said.splitlines()[-1] == f'deployment "{name}" successfully rolled out'


def test_set_what_containers_have(kubectl: Kubectl, paper: str) -> None:
    said = kubectl.run("set", "image", paper, "*=nginx:latest")
    assert said == "deployment.apps/paper image updated\n"
    assert kubectl.path(paper, f"{CONTAINER}.image") == "nginx:latest"
    assert "unable to find container" in kubectl.run("set", "image", paper, "none=nginx", code=1)
    assert kubectl.run("set", "env", paper, "A=1", "B=2") == "deployment.apps/paper env updated\n"
    listed = kubectl.run("set", "env", paper, "--list").splitlines()
    assert listed == ["# Deployment paper, container nginx", "A=1", "B=2"]
    kubectl.run("create", "configmap", "source", "--from-literal=key=value")
    kubectl.run("set", "env", paper, "A-", "--from=configmap/source", "--prefix=FROM_")
    found = json.loads(kubectl.path(paper, f"{CONTAINER}.env"))
    reference = {"configMapKeyRef": {"name": "source", "key": "key"}}
    assert found == [{"name": "B", "value": "2"}, {"name": "FROM_KEY", "valueFrom": reference}]
    resolved = kubectl.run("set", "env", paper, "--list", "--resolve").splitlines()
    assert resolved[1:] == ["B=2", "FROM_KEY=value"]
    resources = ("--limits=cpu=200m,memory=64Mi", "--requests=cpu=100m")
    said = kubectl.run("set", "resources", paper, *resources)
    assert said == "deployment.apps/paper resource requirements updated\n"
    assert json.loads(kubectl.path(paper, f"{CONTAINER}.resources")) == {
        "limits": {"cpu": "200m", "memory": "64Mi"},
        "requests": {"cpu": "100m"},
    }
    kubectl.run("create", "serviceaccount", "robot")
    said = kubectl.run("set", "serviceaccount", paper, "robot")
    assert said == "deployment.apps/paper serviceaccount updated\n"
    assert kubectl.path(paper, ".spec.template.spec.serviceAccountName") == "robot"


def test_set_selectors_and_subjects(kubectl: Kubectl) -> None:
    kubectl.run("create", "service", "clusterip", "points", "--tcp=80")
    said = kubectl.run("set", "selector", "service", "points", "app=other,tier=front")
    assert said == "service/points selector updated\n"
    selector = json.loads(kubectl.path("service/points", ".spec.selector"))
    assert selector == {"app": "other", "tier": "front"}
    kubectl.run("create", "rolebinding", "who", "--role=any", "--user=ann")
    more = ("--user=bob", "--group=devs", f"--serviceaccount={kubectl.namespace}:robot")
    said = kubectl.run("set", "subject", "rolebinding", "who", *more)
    assert said == "rolebinding.rbac.authorization.k8s.io/who subjects updated\n"
    row = kubectl.run("get", "rolebinding", "who", "-o", "wide", "--no-headers").split()
    assert row[1] == "Role/any"
    assert row[3:] == ["ann,", "bob", "devs", f"{kubectl.namespace}/robot"]


def test_scale_on_conditions(kubectl: Kubectl) -> None:
    kubectl.run("create", "deployment", "sized", "--image=nginx", "--replicas=0")
    # So that no pod starts.
    kubectl.run("rollout", "pause", "deployment/sized")
    assert kubectl.run("scale", "deployment/sized", "--replicas=0") == "deployment.apps/sized scaled\n"
    wrong = ("scale", "deployment/sized", "--replicas=0")
    said = kubectl.run(*wrong, "--current-replicas=4", code=1)
    assert said == "error: Expected replicas to be 4, was 0\n"
    said = kubectl.run(*wrong, "--resource-version=1", code=1)
    assert said.startswith("error: Expected resource version to be 1, was ")
    for kind, name in (("ReplicaSet", "bare"), ("ReplicationController", "old")):
        selector: Any = {"matchLabels": {"app": name}} if kind == "ReplicaSet" else {"app": name}
        template = {
            "metadata": {"labels": {"app": name}},
            "spec": pod(name, nodeSelector={"no": "such"})["spec"],
        }
        version = "apps/v1" if kind == "ReplicaSet" else "v1"
        made = {"apiVersion": version, "kind": kind, "metadata": {"name": name}}
        file = kubectl.file(f"{name}.json", made | {"spec": {"selector": selector, "template": template}})
        kubectl.run("create", "-f", file)
        assert kubectl.run("scale", "-f", file, "--replicas=2").endswith(f"/{name} scaled\n")
        assert kubectl.path(f"{kind}/{name}", ".spec.replicas") == "2"
    kubectl.run("wait", "--for=jsonpath={.status.replicas}=2", "rs/bare", "--timeout=30s")
    assert kubectl.run("get", "rs", "bare", "--no-headers").split()[:4] == ["bare", "2", "2", "0"]
    refused = kubectl.run("scale", "configmap/kube-root-ca.crt", "--replicas=2", code=1)
    assert "could not find the requested resource" in refused


def test_a_rollout_from_its_history_and_back(kubectl: Kubectl) -> None:
    kubectl.run("create", "deployment", "rolls", "--image=nginx", "--replicas=2")
    rolled_out(kubectl, "rolls")
    because = ("annotate", "deployment/rolls", "--overwrite")
    kubectl.run(*because, "kubernetes.io/change-cause=first")

    def history() -> list[list[str]]:
        lines = kubectl.run("rollout", "history", "deployment/rolls").splitlines()
        assert lines[0].strip() == "deployment.apps/rolls"
        assert lines[1].split() == ["REVISION", "CHANGE-CAUSE"]
        return [line.split() for line in lines[2:] if line]

    # The controller hands a cause on to the replica set of the moment: to the first before there is another.
    kubectl.cluster.eventually(lambda: history() == [["1", "first"]], "the first cause")
    kubectl.run("set", "image", "deployment/rolls", "nginx=nginx:latest")
    kubectl.run(*because, "kubernetes.io/change-cause=second")
    rolled_out(kubectl, "rolls")
    kubectl.cluster.eventually(lambda: history() == [["1", "first"], ["2", "second"]], "the second cause")
    second = kubectl.run("rollout", "history", "deployment/rolls", "--revision=2")
    assert second.startswith("deployment.apps/rolls with revision #2\nPod Template:\n")
    assert "    Image:\tnginx:latest\n" in second
    assert "unable to find the specified revision" in kubectl.run(
        "rollout", "history", "deployment/rolls", "--revision=9", code=1
    )
    dry = kubectl.run("rollout", "undo", "deployment/rolls", "--dry-run=server")
    assert dry == "deployment.apps/rolls rolled back (server dry run)\n"
    assert kubectl.path("deployment/rolls", f"{CONTAINER}.image") == "nginx:latest"
    undone = kubectl.run("rollout", "undo", "deployment/rolls", "--to-revision=1")
    assert undone == "deployment.apps/rolls rolled back\n"
    rolled_out(kubectl, "rolls")
    assert kubectl.path("deployment/rolls", f"{CONTAINER}.image") == "nginx"
    assert [row[0] for row in history()] == ["2", "3"]
    refused = kubectl.run("rollout", "undo", "deployment/rolls", "--to-revision=9", code=1)
    assert "unable to find specified revision 9 in history" in refused
    refused = kubectl.run("rollout", "status", "deployment/rolls", "--revision=2", code=1)
    assert refused == "error: desired revision (2) is different from the running revision (3)\n"


def test_a_paused_rollout_waits_and_a_restart_makes_new_pods(kubectl: Kubectl) -> None:
    kubectl.run("create", "deployment", "waits", "--image=nginx")
    rolled_out(kubectl, "waits")
    before = kubectl.run("get", "pods", "-l", "app=waits", "-o", "name")
    assert kubectl.run("rollout", "pause", "deployment/waits") == "deployment.apps/waits paused\n"
    assert "is already paused" in kubectl.run("rollout", "pause", "deployment/waits", code=1)
    kubectl.run("set", "env", "deployment/waits", "A=1")
    kubectl.run("wait", "--for=condition=Progressing=Unknown", "deployment/waits", "--timeout=60s")
    # It may have seen the pause, and the change not yet.
    status = ("rollout", "status", "deployment/waits", "--watch=false")
    pending = "0 out of 1 new replicas have been updated"
    kubectl.cluster.eventually(lambda: pending in kubectl.run(*status), "a change that waits")
    assert kubectl.run("get", "pods", "-l", "app=waits", "-o", "name") == before
    refused = kubectl.run("rollout", "restart", "deployment/waits", code=1)
    assert "can't restart paused deployment (run rollout resume first)" in refused
    assert kubectl.run("rollout", "resume", "deployment/waits") == "deployment.apps/waits resumed\n"
    assert "is not paused" in kubectl.run("rollout", "resume", "deployment/waits", code=1)
    rolled_out(kubectl, "waits")
    resumed = kubectl.run("get", "pods", "-l", "app=waits,pod-template-hash", "-o", "name")
    assert (
        kubectl.run("rollout", "restart", "deployment", "-l", "app=waits")
        == "deployment.apps/waits restarted\n"
    )
    rolled_out(kubectl, "waits")
    annotations = json.loads(kubectl.path("deployment/waits", ".spec.template.metadata.annotations"))
    assert list(annotations) == ["kubectl.kubernetes.io/restartedAt"]
    staying = ("get", "pods", "-l", "app=waits", "--field-selector=status.phase=Running", "-o", "name")
    # A rollout is complete before the last of the old pods has ended.
    kubectl.cluster.eventually(
        lambda: not set(kubectl.run(*staying).split()) & set(before.split()), "the first pod to go"
    )
    assert resumed != before
    refused = kubectl.run("rollout", "status", "configmap/kube-root-ca.crt", code=1)
    assert "no status viewer has been implemented for" in refused


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
def test_what_is_owned_goes_or_stays(kubectl: Kubectl, cascade: str) -> None:
    kubectl.run("create", "deployment", cascade, "--image=nginx", "--replicas=0")
    owned = ("rs", "-l", f"app={cascade}", "-o", "name")
    kubectl.cluster.eventually(lambda: kubectl.run("get", *owned), "the replica set")
    (name,) = kubectl.run("get", *owned).split()
    kubectl.run("delete", "deployment", cascade, f"--cascade={cascade}", "--timeout=60s")
    if cascade == "orphan":
        assert kubectl.path(name, ".metadata.ownerReferences") == ""
        kubectl.run("delete", name)
    elif cascade == "foreground":
        assert kubectl.run("get", *owned) == ""
    else:
        kubectl.run("wait", "--for=delete", name, "--timeout=30s")


def test_delete_pods_with_and_without_grace(kubectl: Kubectl) -> None:
    """A pod that ignores its end is given the time that was asked for."""
    stubborn = ("sh", "-c", "trap '' TERM; while true; do sleep 0.2; done")
    names = ["grace", "now", "force", "later"]
    items = [pod(name, *stubborn, terminationGracePeriodSeconds=60) for name in names]
    kubectl.run("create", "-f", "-", input={"apiVersion": "v1", "kind": "List", "items": items})
    kubectl.run("wait", "--for=condition=Ready", *(f"pod/{name}" for name in names), "--timeout=90s")
    deleted = kubectl.run("delete", "pod", "later", "--wait=false")
    where = f" from {kubectl.namespace} namespace" if kubectl.minor > 32 else ""
    assert deleted == f'pod "later" deleted{where}\n'
    assert kubectl.path("pod/later", ".metadata.deletionGracePeriodSeconds") == "60"
    assert kubectl.run("get", "pod", "later", "--no-headers").split()[2] == "Terminating"
    kubectl.run("delete", "pod", "later", "--grace-period=1", "--timeout=60s")
    kubectl.run("delete", "pod", "grace", "--grace-period=2", "--wait=false")
    assert kubectl.path("pod/grace", ".metadata.deletionGracePeriodSeconds") == "2"
    kubectl.run("wait", "--for=delete", "pod/grace", "--timeout=60s")
    kubectl.run("delete", "pod", "now", "--now", "--timeout=60s")
    assert 'pods "now" not found' in kubectl.run("get", "pod", "now", code=1)
    _, warned = kubectl.both("delete", "pod", "force", "--force")
    assert "Immediate deletion does not wait for confirmation" in warned
    assert 'pods "force" not found' in kubectl.run("get", "pod", "force", code=1)
    assert kubectl.run("get", "pods", "-l", "app in (grace,now,force,later)") == ""


def followed_alone(kubectl: Kubectl) -> int:
    """How many watches follow one ConfigMap each."""
    lines = kubectl.run("get", "--raw", "/metrics").splitlines()
    wanted = ("apiserver_longrunning_requests{", 'resource="configmaps"', 'scope="resource"')
    counts = [line.rpartition(" ")[2] for line in lines if all(part in line for part in wanted)]
    return round(sum(map(float, counts)))


def test_wait_for_everything_that_can_be_waited_for(kubectl: Kubectl, paper: str) -> None:
    assert kubectl.run("wait", "--for=condition=Available", paper, "--timeout=30s") == (
        "deployment.apps/paper condition met\n"
    )
    kubectl.run("wait", "--for=condition=Progressing=True", paper, "--timeout=30s")
    kubectl.run("wait", "--for=jsonpath={.spec.replicas}=0", paper, "--timeout=30s")
    kubectl.run("wait", '--for=jsonpath={.status.conditions[?(@.type=="Available")].status}=True', paper)
    late = ("wait", "--for=condition=No", paper, "--timeout=1s")
    assert kubectl.run(*late, code=1) == "error: timed out waiting for the condition on deployments/paper\n"
    refused = kubectl.run("wait", "--for=condition=Ready", "pod/none", "--timeout=1s", code=1)
    assert 'pods "none" not found' in refused
    assert kubectl.run("wait", "--for=condition=Ready", "nodes", "--all").count("condition met") == 2
    kubectl.run("wait", "--for=delete", "configmap/none", "--timeout=5s")
    with kubectl.watching("wait", "--for=create", "configmap/coming", "--timeout=60s") as waiting:
        kubectl.run("create", "configmap", "coming")
        waiting.line_with("configmap/coming condition met")
    before = followed_alone(kubectl)
    with kubectl.watching("wait", "--for=delete", "configmap/coming", "--timeout=60s") as waiting:
        # Of what is gone before it looks, kubectl says nothing.
        kubectl.cluster.eventually(lambda: followed_alone(kubectl) > before, "kubectl waits")
        kubectl.run("delete", "configmap", "coming")
        waiting.line_with("configmap/coming condition met")
