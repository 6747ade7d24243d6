"""The official Python client inside a pod finds and opens the API server by its in-cluster configuration."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from podyard.cluster.spec import IMAGE
from tests.cluster.live import Live, docker, eventually
from tests.cluster.support import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


# Wheels of either C library baseline; the image is Debian's.
PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}

PROGRAM = """
import json
from kubernetes import client, config, watch

config.load_incluster_config()
with open("/var/run/secrets/kubernetes.io/serviceaccount/namespace") as file:
    namespace = file.read()
core = client.CoreV1Api()


def say(what, value):
    print(json.dumps([what, value]), flush=True)


say("pods", sorted(pod.metadata.name for pod in core.list_namespaced_pod(namespace).items))
listed = core.list_namespaced_config_map(namespace)
body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="made-inside"), data={"key": "one"})
made = core.create_namespaced_config_map(namespace, body)
say("created", [made.metadata.namespace, made.data])
core.patch_namespaced_config_map("made-inside", namespace, {"data": {"key": "two"}})
core.delete_namespaced_config_map("made-inside", namespace)
stream = watch.Watch().stream(
    core.list_namespaced_config_map,
    namespace,
    resource_version=listed.metadata.resource_version,
    timeout_seconds=30,
)
for event in stream:
    say("event", [event["type"], event["object"].metadata.name, event["object"].data])
    if event["type"] == "DELETED":
        break
try:
    core.read_namespaced_config_map("made-inside", namespace)
except client.ApiException as error:
    say("absent", [error.status, json.loads(error.body)["reason"]])
bad = client.Configuration.get_default_copy()
bad.refresh_api_key_hook = None
bad.api_key = {"authorization": "Bearer nonsense"}
try:
    client.CoreV1Api(client.ApiClient(bad)).list_namespaced_pod(namespace)
except client.ApiException as error:
    say("bad token", [error.status, json.loads(error.body)["message"]])
"""


@pytest.fixture(scope="module")
def image(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Podyard's image with the client laid over it, in the cluster's registry."""
    shared_cluster.podyard("up")
    version = metadata.version("kubernetes")
    tag = f"podyard-client:{version}"
    context = Path(tmp_path_factory.mktemp("image"))
    machine = docker("image", "inspect", IMAGE, "--format", "{{.Architecture}}").strip()
    python = docker(
        "run", "--rm", IMAGE, "python", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"
    ).strip()
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
    ]
    install += ["--target", str(context / "client"), "--only-binary", ":all:", "--python-version", python]
    for platform in PLATFORMS:
        install += ["--platform", f"{platform}_{MACHINES[machine]}"]
    subprocess.run([*install, f"kubernetes=={version}"], check=True, timeout=300)
    (context / "Dockerfile").write_text(
        f"FROM {IMAGE}\nCOPY client/ /opt/client/\nENV PYTHONPATH=/opt/client\n"
    )
    docker("build", "--quiet", "--tag", tag, str(context), timeout_s=120)
    try:
        shared_cluster.podyard("push", tag)
        yield tag
    finally:
        docker("image", "rm", tag)


def test_the_official_client_works_inside_a_pod(live: Live, namespace: str, image: str) -> None:
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Always",
        "command": ["/opt/podyard/venv/bin/python", "-c", PROGRAM],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "client"},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    live.kubectl("-n", namespace, "apply", "-f", "-", stdin=json.dumps(pod))

    def phase() -> str:
        return str(live.get("pod", "client", "-n", namespace)["status"]["phase"])

    ended = eventually(phase, lambda seen: seen in ("Succeeded", "Failed"), within_s=120)
    log = live.kubectl("-n", namespace, "logs", "client")
    assert ended == "Succeeded", log
    said: list[tuple[str, Any]] = [tuple(json.loads(line)) for line in log.splitlines()]
    assert ("pods", ["client"]) in said
    assert ("created", [namespace, {"key": "one"}]) in said
    events = [value for what, value in said if what == "event" and value[1] == "made-inside"]
    assert events == [
        ["ADDED", "made-inside", {"key": "one"}],
        ["MODIFIED", "made-inside", {"key": "two"}],
        ["DELETED", "made-inside", {"key": "two"}],
    ]
    assert ("absent", [404, "NotFound"]) in said
    assert ("bad token", [401, "Unauthorized"]) in said

    described = live.kubectl("-n", namespace, "describe", "pod", "client")
    assert f'Successfully pulled image "{image}"' in described
