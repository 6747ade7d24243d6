"""etcd for component tests: from our image when it is built, else from the host's `etcd`.

Each server listens on a loopback port of its own and is removed at the end. Tests share one by
session and take a key prefix each; tests that kill or freeze a server start their own.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import docker
import docker.errors
import pytest

from podyard.cluster import ports
from podyard.cluster.spec import IMAGE

LABEL = "podyard.test"
_names = itertools.count()
_ports: set[int] = set()
_START_S = 30.0


class EtcdServer(Protocol):
    """One etcd member under test."""

    endpoint: str

    def start(self) -> None: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def remove(self) -> None: ...


def free_port() -> int:
    """One for good: not one that the kernel gives to an outgoing connection while a server is down.

    Clients that call a dead server over and over may even be connected with themselves on such a port.
    """
    port = ports.free_port(_ports, beginning=f"test-{os.getpid()}")
    _ports.add(port)
    return port


def _wait_healthy(endpoint: str) -> None:
    end_s = time.monotonic() + _START_S
    while time.monotonic() < end_s:
        with contextlib.suppress(urllib.error.URLError, OSError):
            with urllib.request.urlopen(f"http://{endpoint}/health", timeout=1) as answer:
                if b'"true"' in answer.read():
                    return
        time.sleep(0.05)
    raise TimeoutError(f"etcd at {endpoint} is not healthy after {_START_S} s")


class EtcdContainer:
    """etcd in a container of our image; its data outlives a kill, not a removal."""

    def __init__(
        self,
        client: docker.DockerClient,
        *,
        name: str = "",
        network: str | None = None,
        cluster: str = "",
    ) -> None:
        port = free_port()
        name = name or f"podyard-test-{os.getpid()}-{next(_names)}"
        self.endpoint = f"127.0.0.1:{port}"
        command = [
            f"--name={name}",
            "--data-dir=/tmp/etcd-data",
            "--listen-client-urls=http://0.0.0.0:2379",
            f"--advertise-client-urls=http://{name}:2379",
            "--listen-peer-urls=http://0.0.0.0:2380",
            f"--initial-advertise-peer-urls=http://{name}:2380",
            f"--initial-cluster={cluster or f'{name}=http://{name}:2380'}",
            # What a killed process wrote stays in the host's page cache: nothing is lost without fsync.
            "--unsafe-no-fsync",
            "--log-level=error",
        ]
        self._container = client.containers.create(
            IMAGE,
            command,
            entrypoint="etcd",
            name=name,
            hostname=name,
            network=network,
            labels={LABEL: "etcd"},
            ports={"2379/tcp": ("127.0.0.1", port)},
        )

    def start(self) -> None:
        self._container.start()
        _wait_healthy(self.endpoint)

    def start_later(self) -> None:
        self._container.start()

    def wait(self) -> None:
        _wait_healthy(self.endpoint)

    def kill(self) -> None:
        self._container.kill("SIGKILL")
        self._container.wait(timeout=10)

    def pause(self) -> None:
        self._container.pause()

    def resume(self) -> None:
        self._container.unpause()

    def remove(self) -> None:
        self._container.remove(force=True, v=True)


class EtcdProcess:
    """The host's etcd as a child process."""

    def __init__(self, data: Path) -> None:
        port, peer = free_port(), free_port()
        self.endpoint = f"127.0.0.1:{port}"
        self._command = [
            "etcd",
            f"--data-dir={data}",
            f"--listen-client-urls=http://{self.endpoint}",
            f"--advertise-client-urls=http://{self.endpoint}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
            "--log-level=error",
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _wait_healthy(self.endpoint)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        if self._process is not None:
            self.kill()


@pytest.fixture(scope="session")
def docker_client() -> Iterator[docker.DockerClient | None]:
    """The engine, None where there is none or our image is not built."""
    try:
        client = docker.from_env()
        client.images.get(IMAGE)
    except docker.errors.DockerException:
        yield None
        return
    yield client
    client.close()


def _new_etcd(client: docker.DockerClient | None, data: Path) -> EtcdServer:
    if client is not None:
        return EtcdContainer(client)
    if shutil.which("etcd") is None:
        pytest.skip("neither our image nor an etcd binary is here")
    return EtcdProcess(data)


@pytest.fixture(scope="session")
def etcd(
    docker_client: docker.DockerClient | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EtcdServer]:
    """The etcd of the session. Leave it running and use a prefix of your own."""
    server = _new_etcd(docker_client, tmp_path_factory.mktemp("etcd"))
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def own_etcd(docker_client: docker.DockerClient | None, tmp_path: Path) -> Iterator[EtcdServer]:
    """An etcd for one test, to kill, freeze and start again."""
    server = _new_etcd(docker_client, tmp_path / "etcd")
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def etcd_cluster(docker_client: docker.DockerClient | None) -> Iterator[list[EtcdContainer]]:
    """Three members in three containers."""
    if docker_client is None:
        pytest.skip("a cluster of etcd needs our image")
    base = f"podyard-test-{os.getpid()}-{next(_names)}"
    network = docker_client.networks.create(base, labels={LABEL: "etcd"})
    names = [f"{base}-{index}" for index in range(3)]
    cluster = ",".join(f"{name}=http://{name}:2380" for name in names)
    members = [
        EtcdContainer(docker_client, name=name, network=network.name, cluster=cluster) for name in names
    ]
    try:
        for member in members:
            member.start_later()
        for member in members:
            member.wait()
        yield members
    finally:
        for member in members:
            member.remove()
        network.remove()


@pytest.fixture
def key_prefix() -> str:
    """A prefix that no other test of the session uses."""
    return f"/registry/test-{os.getpid()}-{next(_names)}/"
