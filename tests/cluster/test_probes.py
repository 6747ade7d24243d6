"""Probes, hooks, termination messages and deadlines on real containers."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.cluster.live import Live, eventually
from tests.cluster.test_node import Space, pod_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# Serves /ok once the file is there; says its last words into the file of its own.
SERVE = "mkdir -p /www; httpd -p 8080 -h /www; trap 'exit 0' TERM; while :; do sleep 0.1; done"


@pytest.fixture
def space(live: Live, namespace: str) -> Space:
    return Space(live, namespace)


def with_container(pod: dict[str, Any], **fields: Any) -> dict[str, Any]:
    pod["spec"]["containers"][0].update(fields)
    return pod


def is_ready(space: Space, name: str) -> bool:
    return bool(space.status(name).get("ready"))


def run(space: Space, name: str, command: str) -> None:
    """Runs a shell command in the pod's container, through its node's runtime."""
    node, ident = space.pod(name)["spec"]["nodeName"], space.container_id(name)
    task = ("ctr", "-n", "k8s.io", "task", "exec", "--exec-id", uuid.uuid4().hex, ident)
    space.live.in_container(node, *task, "sh", "-c", command)


def messages(space: Space, name: str) -> list[str]:
    selector = f"involvedObject.name={name}"
    events = space.live.get("events", "-n", space.namespace, "--field-selector", selector)
    return [event["message"] for event in events["items"]]


def test_readiness_follows_what_the_probe_finds(space):
    probe = {"httpGet": {"path": "/ok", "port": "http"}, "periodSeconds": 1, "failureThreshold": 1}
    space.apply(
        with_container(
            pod_of("web", command=SERVE),
            ports=[{"name": "http", "containerPort": 8080}],
            readinessProbe=probe,
        )
    )
    eventually(
        lambda: "Readiness probe failed: HTTP probe failed with statuscode: 404" in messages(space, "web")
    )
    assert not is_ready(space, "web")
    run(space, "web", "touch /www/ok")
    eventually(lambda: is_ready(space, "web"))
    run(space, "web", "rm /www/ok")
    eventually(lambda: not is_ready(space, "web"))
    assert space.status("web")["restartCount"] == 0


def test_a_failing_liveness_probe_starts_the_container_again(space):
    probe = {"exec": {"command": ["test", "!", "-e", "/tmp/dead"]}, "periodSeconds": 1, "failureThreshold": 2}
    # A command that a busy machine takes a second for has not failed.
    probe["timeoutSeconds"] = 20
    space.apply(with_container(pod_of("web", command=SERVE), livenessProbe=probe))
    space.ready("web")
    run(space, "web", "touch /tmp/dead")
    eventually(lambda: space.status("web").get("restartCount") == 1)
    told = "Container main failed liveness probe, will be restarted"
    eventually(lambda: told in messages(space, "web"), what="the event")
    space.ready("web")


def test_hooks_run_at_start_and_before_the_end(space):
    hooks = {
        "postStart": {"exec": {"command": ["sh", "-c", "mkdir -p /www; touch /www/hooked"]}},
        "preStop": {"exec": {"command": ["sh", "-c", "echo -n told > /data/told"]}},
    }
    mounts = [{"name": "data", "mountPath": "/data"}]
    probe = {"httpGet": {"path": "/hooked", "port": 8080}, "periodSeconds": 1}
    volumes = [{"name": "data", "hostPath": {"path": "/run/podyard-hooks", "type": "DirectoryOrCreate"}}]
    space.apply(
        with_container(
            pod_of("web", command=SERVE, volumes=volumes),
            lifecycle=hooks,
            volumeMounts=mounts,
            readinessProbe=probe,
        )
    )
    node = space.ready("web")["spec"]["nodeName"]
    space.delete("web")
    assert space.live.in_container(node, "cat", "/run/podyard-hooks/told") == "told"
    space.live.in_container(node, "rm", "-r", "/run/podyard-hooks")


@pytest.mark.parametrize(
    ("policy", "command", "message"),
    [
        ("File", "echo -n disk full > /dev/termination-log; exit 3", "disk full"),
        ("FallbackToLogsOnError", "echo it broke; exit 3", "it broke\n"),
        ("File", "echo it broke; exit 3", None),
    ],
)
def test_a_container_may_say_why_it_ended(space, policy, command, message):
    pod = pod_of("web", command=command, restartPolicy="Never")
    space.apply(with_container(pod, terminationMessagePolicy=policy))
    eventually(lambda: space.pod("web")["status"]["phase"] == "Failed")
    assert space.status("web")["state"]["terminated"].get("message") == message


def test_a_pod_past_its_deadline_fails(space):
    # Time enough for its container to start, however slow the machine.
    space.apply(pod_of("web", command=SERVE, activeDeadlineSeconds=10))
    eventually(lambda: space.pod("web")["status"].get("reason") == "DeadlineExceeded")
    eventually(lambda: "terminated" in space.status("web")["state"])
    assert space.pod("web")["status"]["phase"] == "Failed"
