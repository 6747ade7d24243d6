"""`podyard.testing` as its users have it: only the wheel, a test file outside the repository.

pytest runs in a process of its own, with the reaper of testcontainers and without, and is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from podyard.cluster.spec import IMAGE, LABEL_CLUSTER
from podyard.testing.owners import LABEL_OWNER
from tests.cluster.installed import Installed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# What a user writes.
FAILOVER = """
import asyncio, json, time
import grpc, pytest
from podyard.testing import AsyncPodyardCluster, PodyardCluster


@pytest.fixture(scope="module")
def quick():
    with PodyardCluster(nodes=3, node_grace_s=15, toleration_s=5) as cluster:
        yield cluster


def elsewhere(said, node):
    pods = [pod for pod in json.loads(said)["items"] if pod["spec"].get("nodeName") != node]
    ready = [c["status"] for pod in pods for c in pod["status"].get("conditions", []) if c["type"] == "Ready"]
    return ready.count("True") == 3


def test_the_fixtures(podyard_cluster, podyard_namespace):
    here = ("-n", podyard_namespace)
    podyard_cluster.kubectl("create", "deployment", "web", "--image=nginx", "-r", "3", *here)
    podyard_cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s", *here)
    with podyard_cluster.channel() as channel:
        grpc.channel_ready_future(channel).result(10)


def test_failover_while_another_cluster_runs(podyard_cluster, quick):
    assert podyard_cluster.name != quick.name
    quick.kubectl("create", "deployment", "web", "--image=nginx", "-r", "3")
    quick.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    node = quick.node("worker-2")
    node.kill(wait=True)
    assert "NotReady" in quick.kubectl("get", "nodes")
    assert "NotReady" not in podyard_cluster.kubectl("get", "nodes")
    deadline = time.monotonic() + 90
    while not elsewhere(quick.kubectl("get", "pods", "-o", "json"), f"{quick.name}-worker-2"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    node.start(wait=True)
    assert "NotReady" not in quick.kubectl("get", "nodes")


def test_the_same_on_a_loop():
    async def failover():
        async with AsyncPodyardCluster(nodes=2, node_grace_s=15, toleration_s=5) as cluster:
            await cluster.kubectl("create", "deployment", "web", "--image=nginx", "-r", "3")
            await cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
            async with cluster.channel() as channel:
                await asyncio.wait_for(channel.channel_ready(), 10)
            node = cluster.node("worker-2")
            await node.kill(wait=True)
            async with asyncio.timeout(90):
                while not elsewhere(
                    await cluster.kubectl("get", "pods", "-o", "json"), f"{cluster.name}-worker-2"
                ):
                    await asyncio.sleep(0.2)
            await node.start(wait=True)
            await cluster.component("scheduler-1").stop()
            assert "became leader" in await cluster.logs("scheduler-1")

    asyncio.run(failover())


def test_that_fails(podyard_cluster):
    assert podyard_cluster.name == ""
"""
ENDLESS = """
import time

def test_that_never_ends(podyard_cluster):
    print("it runs", flush=True)
    time.sleep(3600)
"""
# What testcontainers' reaper does, in few lines: it removes what has the label once its client is gone.
REAPER = """
import http.client, json, socket, urllib.parse

class Engine(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect("/var/run/docker.sock")

def ask(method, path):
    engine = Engine("localhost")
    engine.request(method, path)
    body = engine.getresponse().read()
    return json.loads(body) if method == "GET" else None

server = socket.create_server(("", 8080))
print("... Started!", flush=True)
client, _ = server.accept()
told = client.recv(4096)
client.sendall(b"ACK\\n")
try:
    while client.recv(4096):
        pass
except ConnectionResetError:
    pass  # killed before it read the answer
label = told.decode().split()[0].partition("=")[2]
wanted = urllib.parse.quote(json.dumps({"label": [label]}))
for found in ask("GET", f"/containers/json?all=1&filters={wanted}"):
    ask("DELETE", f"/containers/{found['Id']}?force=1&v=1")
for found in ask("GET", f"/networks?filters={wanted}"):
    for name in ask("GET", f"/networks/{found['Id']}")["Containers"]:
        engine = Engine("localhost")
        body, kind = json.dumps({"Container": name, "Force": True}), {"Content-Type": "application/json"}
        engine.request("POST", f"/networks/{found['Id']}/disconnect", body, kind)
        engine.getresponse().read()
    ask("DELETE", f"/networks/{found['Id']}")
for found in ask("GET", f"/volumes?filters={wanted}")["Volumes"] or []:
    ask("DELETE", f"/volumes/{found['Name']}?force=1")
"""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with the users' tests."""
    (tmp_path / "test_failover.py").write_text(FAILOVER)
    (tmp_path / "test_endless.py").write_text(ENDLESS)
    return tmp_path


@pytest.fixture(scope="module")
def reaper() -> Iterator[str]:
    """An image that testcontainers can start as its reaper."""
    client = docker.from_env()
    name = f"podyard-test-reaper:{os.getpid()}"
    container = client.containers.create(IMAGE, [], entrypoint=["python", "-c", REAPER])
    container.commit(name.partition(":")[0], name.partition(":")[2])
    container.remove()
    yield name
    client.images.remove(name, force=True)
    client.close()


def settings(folder: Path, reaper: str | None) -> dict[str, str]:
    """The environment of a user's pytest: with a reaper, or with testcontainers told to use none."""
    told = {"TESTCONTAINERS_RYUK_DISABLED": "true"}
    if reaper is not None:
        told = {"RYUK_CONTAINER_IMAGE": reaper, "TESTCONTAINERS_RYUK_DISABLED": "false"}
    return {**os.environ, "XDG_DATA_HOME": str(folder / "data"), "PYTEST_ADDOPTS": "", **told}


def owned() -> dict[str, str]:
    """Cluster -> owner of all test clusters that are there."""
    client = docker.from_env()
    found = client.containers.list(all=True, ignore_removed=True, filters={"label": LABEL_OWNER})
    volumes = client.volumes.list(filters={"label": LABEL_OWNER})
    networks = client.networks.list(filters={"label": LABEL_OWNER})
    rows = [
        *(container.labels for container in found),
        *(volume.attrs["Labels"] for volume in volumes),
        *(network.attrs["Labels"] for network in networks),
    ]
    client.close()
    return {labels[LABEL_CLUSTER]: labels[LABEL_OWNER] for labels in rows}


def of_process(pid: int) -> list[str]:
    """Clusters that a process made."""
    return sorted(name for name, owner in owned().items() if owner.split("/")[1] == str(pid))


def eventually(condition: Callable[[], bool], within_s: float) -> None:
    end_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.2)


def test_failover_in_a_test_of_ones_own(installed: Installed, outside: Path) -> None:
    options = ("-m", "pytest", "-q", "test_failover.py", "--podyard-nodes", "1")
    done = installed.run(*options, cwd=outside, env=settings(outside, None), timeout=600)
    assert "1 failed, 3 passed" in done.stdout, done.stdout
    # The test that failed left what the cluster has said.
    (left,) = (outside / "podyard-logs").iterdir()
    assert left.name == "test_failover.py_test_that_fails"
    names = {path.name.partition("-worker-1")[1] or path.name for path in left.iterdir()}
    assert {"-worker-1", "objects"} <= names
    assert '"kind": "PodList"' in (left / "objects/pods.json").read_text().replace('":"', '": "')


def test_a_cluster_is_used_again_if_asked(installed: Installed, outside: Path) -> None:
    name = f"again-{os.getpid()}"
    options = ("-m", "pytest", "-q", "-k", "the_fixtures", "--podyard-name", name, "test_failover.py")
    environment = settings(outside, None)
    try:
        for _ in range(2):
            done = installed.run(*options, cwd=outside, env=environment, timeout=300)
            assert "1 passed" in done.stdout, done.stdout
        client = docker.from_env()
        kept = client.containers.list(ignore_removed=True, filters={"label": f"{LABEL_CLUSTER}={name}"})
        client.close()
        assert len(kept) == 8
        assert name not in owned()
    finally:
        installed.run("-m", "podyard.cli.main", "--name", name, "down", env=environment)


@pytest.mark.parametrize("with_reaper", [False, True])
def test_nothing_of_a_killed_run_stays(
    installed: Installed, outside: Path, reaper: str, with_reaper: bool
) -> None:
    environment = settings(outside, reaper if with_reaper else None)
    options = ("-m", "pytest", "-q", "-s", "test_endless.py", "--podyard-nodes", "1")
    process = subprocess.Popen(
        [installed.python, *options],
        cwd=outside,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "it runs" in line:
            break
    assert len(of_process(process.pid)) == 1
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    if with_reaper:
        eventually(lambda: not of_process(process.pid), within_s=60)
    else:
        assert len(of_process(process.pid)) == 1
    again = ("-m", "pytest", "-q", "-k", "the_fixtures", "--podyard-nodes", "1", "test_failover.py")
    done = installed.run(*again, cwd=outside, env=environment, timeout=300)
    assert "1 passed" in done.stdout, done.stdout
    assert of_process(process.pid) == []
