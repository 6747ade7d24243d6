"""What kubectl and gRPC clients see of each other, and what a watch of kubectl's shows of a pod's life.

kubectl's verbs: test_kubectl_*.py.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from podyard.api.types import ConfigMap
from podyard.base.config import TlsFiles
from podyard.client.client import Client
from podyard.client.grpc_transport import GrpcTransport, credentials_of
from tests.cluster.kubectls import Kubectl
from tests.cluster.samples import pod
from tests.cluster.support import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


async def _over_grpc(cluster: Cluster, work: Any) -> Any:
    folder = cluster.data / "podyard" / cluster.name / "pki"
    tls = TlsFiles(ca=str(folder / "ca.crt"), cert=str(folder / "admin.crt"), key=str(folder / "admin.key"))
    ports = cluster.container("apiserver-1").attrs["NetworkSettings"]["Ports"]["6444/tcp"]
    transport = GrpcTransport([f"127.0.0.1:{ports[0]['HostPort']}"], credentials_of(tls))
    try:
        return await work(Client(transport))
    finally:
        await transport.close()


def test_kubectl_sees_what_grpc_makes(kubectl: Kubectl) -> None:
    with kubectl.watching("get", "configmaps", "-w", "--output-watch-events") as watch:
        watch.line_with("kube-root-ca.crt")
        obj = ConfigMap(metadata={"name": "over-grpc", "namespace": kubectl.namespace})

        async def create(client: Client) -> None:
            await client.create(obj)

        asyncio.run(_over_grpc(kubectl.cluster, create))
        _, line = watch.line_with("over-grpc")
        assert line.split()[:2] == ["ADDED", "over-grpc"]


def test_grpc_sees_what_kubectl_makes(kubectl: Kubectl) -> None:
    async def watch(client: Client) -> str:
        listed = await client.list(ConfigMap, kubectl.namespace)
        creating = asyncio.ensure_future(
            asyncio.to_thread(kubectl.run, "create", "configmap", "over-rest", "--from-literal=a=1")
        )
        async with asyncio.timeout(30):
            async for batch in client.watch(
                ConfigMap, kubectl.namespace, resource_version=listed.resource_version
            ):
                for event in batch.events:
                    if event.object.metadata.name == "over-rest":
                        # kubectl prints after it has its answer: the event must not need it to end.
                        await creating
                        return event.type
        raise AssertionError("the watch ended")

    assert asyncio.run(_over_grpc(kubectl.cluster, watch)) == "ADDED"


def test_watch_shows_a_pods_whole_life(kubectl: Kubectl) -> None:
    with kubectl.watching("get", "pods", "-w", "--output-watch-events", "-l", "app=life") as watch:
        kubectl.run("create", "-f", "-", input=pod("life"))
        watch.line_with("ADDED")
        watch.line_with("Running", timeout_s=60)
        kubectl.run("delete", "pod", "life")
        watch.line_with("DELETED")


def test_a_shell_completes_what_is_in_the_cluster(cluster: Cluster) -> None:
    words = f"podyard --name {cluster.name} kubectl get nodes {cluster.name}-"
    told = {"COMP_WORDS": words, "COMP_CWORD": "6", "_PODYARD_COMPLETE": "bash_complete"}

    def offered() -> str:
        # By its name, which decides what the variable is called.
        return subprocess.run(
            [Path(sys.executable).with_name("podyard")],
            env={**cluster.environment, **told},
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        ).stdout

    nodes = [f"{cluster.name}-worker-{number}" for number in (1, 2)]
    # It offers nothing rather than be waited for on a busy machine.
    cluster.eventually(lambda: offered().split() == [f"plain,{node}" for node in nodes], "the nodes' names")
