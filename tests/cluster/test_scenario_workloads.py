"""The scenario's first half: a Deployment as its users make, look at, change and delete it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.cluster.live import Live
from tests.cluster.scenario import (
    MOST,
    REPLICAS,
    History,
    client_pod,
    deployment,
    is_ready,
    pods,
    service,
    staying,
)
from tests.cluster.support import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

APP = "k8s-nginx"
ROLLED_OUT = ("rollout", "status", f"deployment/{APP}", "--timeout=90s")
# Serves its own name and will not end when asked to.
STUBBORN = (
    "mkdir -p /www; cp /etc/hostname /www/index.html; trap 'echo TERM' TERM; "
    "httpd -p 8080 -h /www; echo serving; while :; do sleep 0.1; done"
)
# Half a dozen looks go into the grace, each of a second or more on a slow machine.
HOOK_S, GRACE_S = 15, 30


class Scene:
    """One namespace of the cluster."""

    def __init__(self, live: Live, cluster: Cluster, namespace: str) -> None:
        self.live = live
        self.cluster = cluster
        self.namespace = namespace

    def kubectl(self, *arguments: str, **options: Any) -> str:
        return self.cluster.kubectl("-n", self.namespace, *arguments, **options).stdout

    def apply(self, *objects: dict[str, Any]) -> str:
        return self.cluster.apply(*objects, namespace=self.namespace)

    def pods(self, app: str = APP) -> list[dict[str, Any]]:
        return pods(self.cluster, app, self.namespace)

    def short(self, node: str) -> str:
        return node.removeprefix(f"{self.cluster.name}-")

    def client_has_said(self, text: str) -> bool:
        """Whether the client's log has a text; while its container is not there yet there is no log."""
        return text in self.kubectl("logs", "client", check=False)

    def endpoints(self, app: str) -> dict[str, dict[str, bool]]:
        """Conditions of a Service's endpoints by the pods' names."""
        selector = f"kubernetes.io/service-name={app}"
        slices = self.cluster.get("endpointslices", "-n", self.namespace, "-l", selector)["items"]
        found = [entry for item in slices for entry in item.get("endpoints") or []]
        return {entry["targetRef"]["name"]: entry["conditions"] for entry in found}


@pytest.fixture
def scene(live: Live, cluster: Cluster, namespace: str) -> Scene:
    return Scene(live, cluster, namespace)


def test_a_deployment_is_spread_reached_and_described(scene: Scene) -> None:
    scene.kubectl("create", "deployment", APP, "--image=nginx", "-r", "3")
    scene.kubectl("expose", "deployment", APP, "--port=80")
    scene.kubectl(*ROLLED_OUT)
    scene.apply(client_pod("client", APP))
    found = scene.pods()
    nodes = {pod["spec"]["nodeName"] for pod in found}
    assert len(nodes) == 2
    assert len({pod["status"]["podIP"] for pod in found}) == REPLICAS
    for pod in found:
        (other,) = nodes - {pod["spec"]["nodeName"]}
        ask = ("curl", "-sS", "-m", "5", f"http://{pod['status']['podIP']}/")
        # It may run and not listen yet.
        scene.cluster.eventually(
            lambda other=other, ask=ask: (
                "Welcome to nginx" in scene.cluster.run_in(scene.short(other), *ask, check=False)
            ),
            "the pod to answer",
        )
    # By the Service's name, from a pod.
    scene.cluster.eventually(lambda: scene.client_has_said("20 ok"), "the Service to answer")

    described = squeezed(scene.kubectl("describe", "deployment", APP))
    for line in (
        "Annotations: deployment.kubernetes.io/revision: 1",
        "Replicas: 3 desired | 3 updated | 3 total | 3 available | 0 unavailable",
        "Available True MinimumReplicasAvailable",
        "Progressing True NewReplicaSetAvailable",
    ):
        assert line in described
    owner = found[0]["metadata"]["ownerReferences"][0]["name"]
    assert f"deployment-controller Scaled up replica set {owner} from 0 to 3" in described
    described = squeezed(scene.kubectl("describe", "pod", found[0]["metadata"]["name"]))
    for line in (
        f"pod-template-hash={owner.removeprefix(APP + '-')}",
        f"Controlled By: ReplicaSet/{owner}",
        "QoS Class: BestEffort",
        "node.kubernetes.io/unreachable:NoExecute op=Exists for 300s",
        "/var/run/secrets/kubernetes.io/serviceaccount from kube-api-access-",
        f"Successfully assigned {scene.namespace}/{found[0]['metadata']['name']} to ",
        "kubelet spec.containers{nginx}: Container created",
        "kubelet spec.containers{nginx}: Container started",
    ):
        assert line in described


def squeezed(text: str) -> str:
    """With one blank between words, so that columns do not matter."""
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def test_what_is_applied_twice_is_unchanged(scene: Scene) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "single"},
        "spec": {"containers": [{"name": "nginx", "image": "nginx", "ports": [{"containerPort": 80}]}]},
    }
    objects = (pod, deployment(APP, careful=True))
    assert scene.apply(*objects).splitlines() == ["pod/single created", f"deployment.apps/{APP} created"]
    for _ in range(2):
        said = scene.apply(*objects).splitlines()
        assert said == ["pod/single unchanged", f"deployment.apps/{APP} unchanged"]


def test_what_is_deleted_is_made_again_or_goes_with_its_owner(scene: Scene) -> None:
    scene.apply(deployment(APP))
    scene.kubectl(*ROLLED_OUT)
    (first,) = scene.cluster.get("rs", "-n", scene.namespace)["items"]
    scene.kubectl("delete", "rs", first["metadata"]["name"])
    # Until the controller has seen it, the Deployment is as it was.
    (second,) = scene.cluster.eventually(
        lambda: scene.cluster.get("rs", "-n", scene.namespace)["items"], "another replica set"
    )
    assert second["metadata"]["name"] == first["metadata"]["name"]
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    scene.kubectl(*ROLLED_OUT)
    scene.kubectl("delete", "deployment", APP)
    gone = lambda: not scene.cluster.get("rs,pods", "-n", scene.namespace)["items"]  # noqa: E731
    scene.cluster.eventually(gone, "replica set and pods to go")


def test_rollouts_lose_no_request(scene: Scene) -> None:
    scene.apply(deployment(APP, careful=True), service(APP), client_pod("client", APP))
    scene.kubectl(*ROLLED_OUT)
    scene.cluster.eventually(lambda: scene.client_has_said("50 ok"), "the client to begin")
    with History(scene.live, scene.namespace, APP).recorded() as history:
        scene.kubectl("rollout", "restart", f"deployment/{APP}")
        scene.kubectl(*ROLLED_OUT)
        scene.kubectl("set", "image", f"deployment/{APP}", "nginx=nginx:latest")
        scene.kubectl(*ROLLED_OUT)
        assert images(scene) == {"nginx:latest"}
        scene.kubectl("rollout", "undo", f"deployment/{APP}")
        scene.kubectl(*ROLLED_OUT)
        assert images(scene) == {"nginx"}
        scene.cluster.eventually(lambda: len(scene.pods()) == REPLICAS, "the old pods to end")
    asked = scene.kubectl("logs", "client").splitlines()
    assert asked[0] == "begun"
    assert [line for line in asked[1:] if not line.endswith(" ok")] == []
    assert history.bounds() == (MOST, REPLICAS)


def images(scene: Scene) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in staying(scene.pods())}


def test_an_ending_pod_leaves_its_service_serves_on_and_is_killed_last(scene: Scene) -> None:
    ends = [ending_pod(f"end-{number}", f"{scene.cluster.name}-worker-{number}") for number in (1, 2)]
    scene.apply(*ends, service("end", 8080))
    scene.kubectl("wait", "--for=condition=Ready", "pod/end-1", "pod/end-2", "--timeout=60s")
    address = scene.cluster.get("service", "end", "-n", scene.namespace)["spec"]["clusterIP"]
    scene.cluster.eventually(lambda: answers(scene, address) == {"end-1", "end-2"}, "both to answer")
    log = follow(scene, "end-1")
    with History(scene.live, scene.namespace, "end").recorded() as history:
        scene.kubectl("delete", "pod", "end-1", "--wait=false")
        assert "Terminating" in scene.kubectl("get", "pod", "end-1")
        left = {"ready": False, "serving": True, "terminating": True}
        scene.cluster.eventually(lambda: scene.endpoints("end")["end-1"] == left, "the endpoint to end")
        assert scene.endpoints("end")["end-2"]["ready"]
        scene.cluster.eventually(lambda: answers(scene, address) == {"end-2"}, "the rules to drop it")
        # With no ready one left, those that still serve take over.
        scene.kubectl("delete", "pod", "end-2", "--wait=false")
        scene.cluster.eventually(lambda: answers(scene, address) == {"end-1", "end-2"}, "both to serve on")
        assert scene.kubectl("get", "pods", "-l", "app=end").count("Terminating") == 2
        assert log.communicate(timeout=60)[0].splitlines() == ["serving", "hook", "TERM"]
        gone = lambda: not scene.pods("end")  # noqa: E731
        scene.cluster.eventually(gone, "both to go")
    (ended,) = history.of("end-1")[-1].status.containerStatuses
    assert (ended.state.terminated.exitCode, ended.restartCount) == (137, 0)
    taken_s = ended.state.terminated.finishedAt.seconds - deleted_at_s(history, "end-1")
    assert taken_s >= GRACE_S - 1, "killed before the end of its grace"


def ending_pod(name: str, node: str) -> dict[str, Any]:
    hook = {"exec": {"command": ["sh", "-c", f"echo hook > /proc/1/fd/1; sleep {HOOK_S}"]}}
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", STUBBORN],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
        "lifecycle": {"preStop": hook},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "end"}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": GRACE_S,
            "containers": [container],
        },
    }


def answers(scene: Scene, address: str) -> set[str]:
    """Who answers behind an address, of many requests."""
    command = f"for n in $(seq 16); do curl -sS -m 2 http://{address}/ || echo nobody; done"
    return set(scene.cluster.run_in("worker-1", "sh", "-c", command).split())


def follow(scene: Scene, pod: str) -> subprocess.Popen[str]:
    """A pod's log as it grows; ends with the pod."""
    options = ("--name", scene.cluster.name, "kubectl", "-n", scene.namespace)
    return subprocess.Popen(
        [sys.executable, "-m", "podyard.cli.main", *options, "logs", "-f", pod],
        env=scene.cluster.environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def deleted_at_s(history: History, name: str) -> int:
    """When the delete was asked for: the stored time is when the grace ends."""
    pod = next(pod for pod in history.of(name) if pod.metadata.HasField("deletionTimestamp"))
    return int(pod.metadata.deletionTimestamp.seconds) - pod.metadata.deletionGracePeriodSeconds


def test_a_container_whose_hook_after_start_fails_starts_again(scene: Scene) -> None:
    hook = {"exec": {"command": ["sh", "-c", "exit 4"]}}
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"],
        "lifecycle": {"postStart": hook},
    }
    scene.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "hooked", "labels": {"app": "hooked"}},
            "spec": {"containers": [container]},
        }
    )

    def restarts() -> int:
        (pod,) = scene.pods("hooked")
        return sum(status["restartCount"] for status in pod["status"].get("containerStatuses", []))

    scene.cluster.eventually(restarts, "a restart")
    assert not is_ready(scene.pods("hooked")[0])
    selector = ("--field-selector", "involvedObject.name=hooked,reason=FailedPostStartHook")
    events = scene.cluster.eventually(
        lambda: scene.cluster.get("events", "-n", scene.namespace, *selector)["items"], "the event"
    )
    assert {event["message"] for event in events} == {"PostStartHook failed"}


def test_dependents_go_first_go_after_or_stay(scene: Scene) -> None:
    owned = ("rs,pods", "-n", scene.namespace, "-l", f"app={APP}")
    # Foreground: the owner waits for what it owns.
    scene.apply(deployment(APP))
    scene.kubectl(*ROLLED_OUT)
    scene.kubectl("delete", "deployment", APP, "--cascade=foreground", "--timeout=60s")
    assert scene.cluster.get(*owned)["items"] == []
    # Orphan: what it owned stays, without an owner, and a new Deployment adopts it.
    scene.apply(deployment(APP))
    scene.kubectl(*ROLLED_OUT)
    before = {item["metadata"]["uid"] for item in scene.cluster.get(*owned)["items"]}
    scene.kubectl("delete", "deployment", APP, "--cascade=orphan", "--timeout=60s")
    (left,) = scene.cluster.get("rs", "-n", scene.namespace)["items"]
    assert "ownerReferences" not in left["metadata"]
    scene.apply(deployment(APP))
    scene.kubectl(*ROLLED_OUT)
    (adopted,) = scene.cluster.get("rs", "-n", scene.namespace)["items"]
    assert [owner["name"] for owner in adopted["metadata"]["ownerReferences"]] == [APP]
    assert {item["metadata"]["uid"] for item in scene.cluster.get(*owned)["items"]} == before


def progress_within(scene: Scene, seconds: int) -> None:
    """Sets the deadline of the Deployment's progress."""
    change = json.dumps({"spec": {"progressDeadlineSeconds": seconds}})
    scene.kubectl("patch", "deployment", APP, "-p", change)


def test_a_deployment_that_cannot_progress_says_so_and_pauses(scene: Scene) -> None:
    wanted = deployment(APP)
    wanted["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    scene.apply(wanted)
    scene.kubectl(*ROLLED_OUT)
    # What can progress has all the time that it needs.
    progress_within(scene, 5)
    scene.kubectl("set", "image", f"deployment/{APP}", "nginx=nginx:none")
    said = scene.cluster.kubectl("-n", scene.namespace, *ROLLED_OUT, check=False)
    assert said.returncode == 1
    assert f'deployment "{APP}" exceeded its progress deadline' in said.stderr
    # One at a time: two of the old ones serve on.
    assert sum(is_ready(pod) for pod in staying(scene.pods())) == REPLICAS - 1
    scene.kubectl("rollout", "pause", f"deployment/{APP}")
    progress_within(scene, 600)
    scene.kubectl("set", "image", f"deployment/{APP}", "nginx=nginx:latest")
    assert (
        "paused"
        in scene.cluster.kubectl(
            "-n", scene.namespace, "rollout", "undo", f"deployment/{APP}", check=False
        ).stderr
    )
    scene.kubectl("rollout", "resume", f"deployment/{APP}")
    scene.kubectl(*ROLLED_OUT)
    assert images(scene) == {"nginx:latest"}
