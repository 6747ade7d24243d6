"""One real cluster for all tests of a session that only use it; tests that make their own override `cluster`.

`PODYARD_TEST_CLUSTER=NAME` uses a cluster that is up already and leaves it, for quick turns by hand.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster import foreign
from tests.cluster.installed import Installed, install
from tests.cluster.kubectls import Kubectl
from tests.cluster.live import Live
from tests.cluster.support import Cluster, brought_up


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """As users have it, outside the repository."""
    return install(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def foreign_image() -> Iterator[str]:
    """An image with Debian 13's compose, kubectl and Ruby gRPC; see `foreign.command`."""
    image = foreign.build()
    yield image
    foreign.remove(image)


@pytest.fixture(scope="session")
def foreign_container(foreign_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A container of that image that stays; it sees the folders of all tests."""
    with foreign.staying(foreign_image, tmp_path_factory.getbasetemp()) as name:
        yield name


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes, up and ready."""
    name = os.environ.get("PODYARD_TEST_CLUSTER")
    if name:
        yield Cluster(name, None)
        return
    with brought_up(f"shared-{os.getpid()}", tmp_path_factory.mktemp("data"), "--build") as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    """The session's cluster, whole again if a test before broke something."""
    shared_cluster.podyard("up")
    return shared_cluster


@pytest.fixture(scope="module")
def kubeconfig(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The administrator's, in a folder of the module's own; the cluster is whole again."""
    shared_cluster.podyard("up")
    path = Path(tmp_path_factory.mktemp("kubectl") / "kubeconfig")
    path.write_text(shared_cluster.podyard("kubeconfig").stdout)
    return path


@pytest.fixture(scope="module", params=["environment", "debian"])
def kubectl(request: pytest.FixtureRequest, shared_cluster: Cluster, kubeconfig: Path) -> Iterator[Kubectl]:
    """The environment's kubectl, then Debian 13's, each in a namespace of its own."""
    container = request.getfixturevalue("foreign_container") if request.param == "debian" else None
    one = Kubectl(shared_cluster, kubeconfig, f"kubectl-{time.time_ns() % 10**9}", container)
    one.make_namespace()
    yield one
    one.remove_namespace()


@pytest.fixture
def live(cluster: Cluster) -> Live:
    """The same, with hands on its containers' processes."""
    return Live(cluster.name, cluster.data)


@contextmanager
def own_namespace(cluster: Cluster, asker: str) -> Iterator[str]:
    """A namespace named after who asks for it, gone with all in it afterwards."""
    name = re.sub(r"[^a-z0-9]+", "-", asker.lower()).strip("-")[:40] + "-" + uuid.uuid4().hex[:6]
    cluster.kubectl("create", "namespace", name)
    needed = ("serviceaccount/default", "configmap/kube-root-ca.crt")
    cluster.eventually(
        lambda: cluster.kubectl("get", *needed, "-n", name, check=False).returncode == 0,
        "what pods of the namespace need",
    )
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=true", "--timeout=90s")


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own."""
    with own_namespace(cluster, request.node.name) as name:
        yield name


@pytest.fixture(scope="module")
def place(shared_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for all tests of a module."""
    shared_cluster.podyard("up")
    with own_namespace(
        shared_cluster, request.module.__name__.rpartition(".")[2].removeprefix("test_")
    ) as name:
        yield name
