"""`podyard up`, `status`, `list`, `logs`, `kubectl`, `down` on the real engine, by the command line alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.cluster.installed import Installed
from tests.cluster.live import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Cluster:
    """A cluster of the test's own, used through the command."""

    def __init__(self, name: str, data: Path, command: tuple[str, ...]) -> None:
        self.name = name
        self.command = command
        self.environment = {**os.environ, "XDG_DATA_HOME": str(data)}
        self.engine = docker.from_env()

    def run(self, *arguments: str, code: int = 0) -> str:
        """Output and messages together; the exit code must be `code`."""
        done = subprocess.run(
            [*self.command, "--name", self.name, *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=500,
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    @property
    def label(self) -> dict[str, str]:
        return {"label": f"podyard.cluster={self.name}"}

    def containers(self) -> list[Any]:
        """In any state."""
        return list(self.engine.containers.list(all=True, ignore_removed=True, filters=self.label))

    def states(self) -> dict[str, str]:
        return {row.name.removeprefix(f"{self.name}-"): row.status for row in self.containers()}

    def ids(self) -> dict[str, str]:
        return {row.name: row.id for row in self.containers()}

    def leftovers(self) -> list[str]:
        found = [row.name for row in self.containers()]
        found += [row.name for row in self.engine.volumes.list(filters=self.label)]
        found += [row.name for row in self.engine.networks.list(filters=self.label)]
        return found


def this_command() -> tuple[str, ...]:
    return (sys.executable, "-m", "podyard.cli.main")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    one = Cluster(f"test-{os.getpid()}", tmp_path / "data", this_command())
    try:
        yield one
    finally:
        one.run("down")
        assert one.leftovers() == []
        one.engine.close()


def running(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "running")


CONTROL_PLANE = ("etcd-1", "etcd-2", "etcd-3", "apiserver-1", "controller-manager-1", "scheduler-1")


def test_up_grows_repairs_and_touches_nothing_else(cluster: Cluster) -> None:
    cluster.run("up", "--no-wait", "--nodes", "1")
    assert cluster.states() == running(*CONTROL_PLANE, "worker-1")
    before = cluster.ids()

    assert "nothing to do" in cluster.run("up", "--no-wait")
    cluster.run("up", "--no-wait", "--nodes", "2")
    assert cluster.states() == running(*CONTROL_PLANE, "worker-1", "worker-2")
    assert before.items() <= cluster.ids().items()

    assert "takes none away" in cluster.run("up", "--no-wait", "--nodes", "1", code=2)

    def container(name: str) -> docker.models.containers.Container:
        return cluster.engine.containers.get(f"{cluster.name}-{name}")

    before = cluster.ids()
    container("etcd-2").kill("SIGKILL")
    container("worker-2").pause()
    cluster.engine.networks.get(cluster.name).disconnect(container("scheduler-1"))
    cluster.run("up", "--no-wait")
    assert cluster.states() == running(*CONTROL_PLANE, "worker-1", "worker-2")
    assert cluster.ids() == before
    addresses = container("scheduler-1").attrs["NetworkSettings"]["Networks"]
    assert list(addresses) == [cluster.name]

    assert cluster.name in cluster.run("list")
    # By the container's first process, for which `--no-wait` does not wait.
    eventually(lambda: "etcd started" in cluster.run("logs", "etcd-2"))
    assert "etcd-1" in cluster.run("logs", "nothing", code=4)


def test_up_ends_with_nodes_that_run_pods(cluster: Cluster) -> None:
    cluster.run("up")
    assert "nothing to do" in cluster.run("up")
    # A missing or unready part would make the exit code 1.
    rows = [line.split() for line in cluster.run("status").splitlines()]
    ready = {row[0]: row[3] for row in rows if len(row) == 6 and row[0] in cluster.ids()}
    assert ready == dict.fromkeys(cluster.ids(), "yes")
    cluster.run("kubectl", "run", "web", "--image=nginx")
    cluster.run("kubectl", "wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
    # kubectl's own exit code comes through.
    cluster.run("kubectl", "get", "pod", "none", code=1)
    config = cluster.run("kubeconfig")
    assert "client-key-data" in config
    cluster.run("kubectl", "delete", "pod", "web", "--timeout=45s")


def test_down_leaves_the_registry_and_nothing_else(cluster: Cluster) -> None:
    cluster.run("up", "--no-wait", "--nodes", "1")
    state = Path(cluster.environment["XDG_DATA_HOME"]) / "podyard" / cluster.name
    assert state.stat().st_mode & 0o777 == 0o700
    cluster.run("down")
    assert cluster.leftovers() == []
    assert not state.exists()
    registry = cluster.engine.containers.get("podyard-registry")
    assert registry.status == "running"
    assert cluster.name not in registry.attrs["NetworkSettings"]["Networks"]
    assert "there is no cluster" in cluster.run("down")
    cluster.run("status", code=4)
    cluster.run("kubectl", "get", "nodes", code=4)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_up_goes_on_where_it_was(cluster: Cluster, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [*cluster.command, "--name", cluster.name, "up", "--no-wait", "--nodes", "1"],
        env=cluster.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("creating 7 containers"):
            break
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == (130 if number is signal.SIGINT else -number)
    cluster.run("up", "--no-wait")
    assert cluster.states() == running(*CONTROL_PLANE, "worker-1")
    assert "nothing to do" in cluster.run("up", "--no-wait")


def test_a_wheel_outside_the_clone_builds_the_same_image(tmp_path: Path, installed: Installed) -> None:
    script = "from podyard.cluster import image; f = image.context_files(); print(image.context_digest(f))"

    def digest(interpreter: Path, folder: Path) -> str:
        done = subprocess.run(
            [interpreter, "-c", script], cwd=folder, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    # The clone may be worked on meanwhile: the copy is what the wheel was built from.
    assert digest(installed.python, tmp_path) == digest(Path(sys.executable), installed.copy)
    one = Cluster(f"wheel-{os.getpid()}", tmp_path / "data", (str(installed.python.with_name("podyard")),))
    try:
        one.run("up", "--no-wait", "--nodes", "1")
        assert one.states() == running(*CONTROL_PLANE, "worker-1")
    finally:
        one.run("down")
        assert one.leftovers() == []
        one.engine.close()
