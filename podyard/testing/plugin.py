"""The pytest plugin: a real cluster and a namespace of its own for each test.

    def test_three_replicas(podyard_cluster, podyard_namespace):
        podyard_cluster.kubectl("create", "deployment", "web", "--image=nginx", "-n", podyard_namespace)

It comes with the package (entry point `podyard`). A test that fails leaves what the cluster has said in a
folder. Imports nothing heavy before a test asks for a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from podyard.testing.cluster import PodyardCluster

_DEFAULT_REUSED = "podyard-test"
_NAME = 40  # characters of a test's name in its namespace


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("podyard", "real Kubernetes clusters (podyard)")
    group.addoption(
        "--podyard-reuse",
        nargs="?",
        const=_DEFAULT_REUSED,
        metavar="NAME",
        help=f"use the cluster NAME (default {_DEFAULT_REUSED}) if it is there, and leave it afterwards",
    )
    group.addoption(
        "--podyard-nodes", type=int, default=2, metavar="N", help="nodes of the cluster; default 2"
    )
    group.addoption(
        "--podyard-logs",
        type=Path,
        default=Path("podyard-logs"),
        metavar="DIR",
        help="where a failed test leaves what the cluster has said; default podyard-logs",
    )


@pytest.fixture(scope="session")
def podyard_cluster(request: pytest.FixtureRequest) -> Iterator[PodyardCluster]:
    """A running cluster, the same for all tests of the session."""
    from podyard.testing.cluster import PodyardCluster

    reused = request.config.getoption("--podyard-reuse")
    nodes = request.config.getoption("--podyard-nodes")
    with PodyardCluster(reused, nodes=nodes, reuse=reused is not None) as cluster:
        yield cluster


@pytest.fixture
def podyard_namespace(podyard_cluster: PodyardCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace that is made for the test and removed with all in it."""
    from podyard.base import ids

    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:_NAME].rstrip("-")
    namespace = f"{name or 'test'}-{ids.hex_id(6)}"
    podyard_cluster.kubectl("create", "namespace", namespace)
    # Pods can be made once its account is there.
    wait = ("wait", "--for=create", "serviceaccount/default", "-n", namespace, "--timeout=30s")
    podyard_cluster.kubectl(*wait)
    yield namespace
    podyard_cluster.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    cluster = getattr(item, "funcargs", {}).get("podyard_cluster")
    if report.failed and cluster is not None:
        directory = item.config.getoption("--podyard-logs") / re.sub(r"[^\w.-]+", "_", item.nodeid)
        try:
            cluster.export_logs(directory)
            report.sections.append(("podyard", f"what the cluster has said is in {directory}"))
        except Exception as error:  # the test's own failure is what counts
            report.sections.append(("podyard", f"the cluster's logs could not be copied: {error}"))
    return report
