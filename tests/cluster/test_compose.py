"""A cluster made by compose, old and new, is the same cluster for every other command."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
import yaml

from podyard.base import clock, pki
from podyard.cluster.ports import candidate_subnets
from tests.cluster import foreign
from tests.cluster.support import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SOCKET = "/var/run/docker.sock"
OLDER = ("docker-compose",)


@pytest.fixture(params=["1.29", "2"])
def compose(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The command, and its major version checked."""
    command: tuple[str, ...] = OLDER
    if request.param != "1.29":
        image = request.getfixturevalue("foreign_image")
        command = (*foreign.command(image, SOCKET), "docker-compose")
    said = subprocess.run([*command, "version", "--short"], capture_output=True, text=True, check=True).stdout
    assert said.startswith(request.param)
    return command


class Composed(Cluster):
    """A cluster of one compose file."""

    def __init__(self, name: str, data: Path, command: tuple[str, ...]) -> None:
        super().__init__(name, data)
        used = [row["Subnet"] for n in self.engine.networks.list() for row in n.attrs["IPAM"]["Config"] or ()]
        self.subnet = candidate_subnets(used, beginning=name)[0]
        self.command = command
        self.file = ""
        self.authority = data / "company-ca.crt"
        self.authority.write_bytes(pki.new_authority("company", now_s=clock.real_now_s()).certificate)
        self.write(extraCAs=[str(self.authority)])

    def write(self, **said: Any) -> None:
        """Writes the compose file of a cluster of which a file of ours says this."""
        config = yaml.safe_dump({"apiVersion": "podyard.io/v1alpha1", "kind": "Cluster", **said})
        self.file = self.podyard("compose", "--subnet", self.subnet, "--config", "-", input=config).stdout

    def ids(self) -> dict[str, str]:
        """Name, without the cluster's -> id, of every container but the one that has ended."""
        label = {"label": f"podyard.cluster={self.name}", "status": "running"}
        return {
            found.name.removeprefix(f"{self.name}-"): found.id
            for found in self.engine.containers.list(ignore_removed=True, filters=label)
        }

    def compose(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self.command, "-p", self.name, "-f", "-", *arguments],
            input=self.file,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture
def composed(tmp_path: Path, compose: tuple[str, ...]) -> Iterator[Composed]:
    cluster = Composed(f"composed-{os.getpid()}", tmp_path, compose)
    try:
        cluster.compose("up", "-d")
        yield cluster
    finally:
        cluster.compose("down", "--volumes")
    client = docker.from_env()
    label = {"label": f"podyard.cluster={cluster.name}"}
    left = [
        client.containers.list(all=True, ignore_removed=True, filters=label),
        client.volumes.list(filters=label),
    ]
    left.append(client.networks.list(filters=label))
    client.close()
    assert left == [[], [], []]


def test_every_other_command_works_on_it(composed: Composed) -> None:
    composed.eventually(lambda: composed.podyard("status", check=False).returncode == 0, "ready")
    composed.kubectl("run", "web", "--image=nginx")
    pod = composed.pod_running("web")
    node = pod["spec"]["nodeName"]
    assert node in {f"{composed.name}-worker-1", f"{composed.name}-worker-2"}

    said = composed.podyard("component", "kill", "scheduler-1").stderr
    assert "stays dead" in said
    composed.podyard("component", "start", "scheduler-1")
    composed.podyard("node", "partition", "worker-2")
    composed.podyard("node", "heal", "worker-2", "--wait")
    assert "containerd" in composed.podyard("logs", "worker-1").stdout

    refused = composed.podyard("up", check=False)
    assert refused.returncode == 1
    assert "made by compose" in refused.stderr

    # Up once more is nothing new; and made anew it has other keys, which nobody must tell the command.
    composed.compose("up", "-d")
    assert composed.pod_running("web")["metadata"]["uid"] == pod["metadata"]["uid"]
    composed.compose("down", "--volumes")
    composed.compose("up", "-d")
    composed.eventually(lambda: composed.podyard("status", check=False).returncode == 0, "ready again")
    assert composed.get("pods")["items"] == []


def test_a_changed_file_changes_the_running_cluster(composed: Composed) -> None:
    """What changed is made anew, and the work goes on."""
    composed.eventually(lambda: composed.podyard("status", check=False).returncode == 0, "ready")
    composed.kubectl("create", "deployment", "web", "--image=nginx", "--replicas=2")
    composed.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    assert trusts(composed)
    first = composed.ids()

    composed.write(
        nodes=3, components={"scheduler": {"scheduler_name": "other"}}, extraCAs=[str(composed.authority)]
    )
    composed.compose("up", "-d")
    second = composed.ids()
    anew = {name for name in second if second[name] != first.get(name)}
    # Compose 2.26 makes all anew that wait for a service that it makes anew: the one that writes the files.
    assert anew == ({"scheduler-1", "worker-3"} if composed.command == OLDER else set(second))
    composed.eventually(lambda: composed.podyard("status", check=False).returncode == 0, "ready")
    composed.kubectl("run", "odd", "--image=nginx", '--overrides={"spec": {"schedulerName": "other"}}')
    composed.pod_running("odd")

    composed.write(nodes=3)
    composed.compose("up", "-d")
    third = composed.ids()
    assert {name for name in third if third[name] == second[name]} <= {"registry"}
    composed.eventually(lambda: composed.podyard("status", check=False).returncode == 0, "ready again")
    assert not trusts(composed)
    composed.kubectl("scale", "deployment", "web", "--replicas=4")
    composed.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
    assert len(composed.get("nodes")["items"]) == 3


def trusts(composed: Composed) -> bool:
    """Whether a node's own list of authorities has that of the file."""
    listed = composed.run_in("worker-1", "cat", "/etc/ssl/certs/ca-certificates.crt")
    return composed.authority.read_text().strip() in listed.replace("\r", "")
