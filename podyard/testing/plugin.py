"""The pytest plugin: a real cluster and a namespace of its own for each test.

    def test_three_replicas(podyard_cluster, podyard_namespace):
        podyard_cluster.kubectl("create", "deployment", "web", "--image=nginx", "-n", podyard_namespace)

It comes with the package (entry point `podyard`). A test that fails leaves what the cluster has said in a
folder. Imports nothing heavy before a test asks for a cluster.
"""

from __future__ import annotations

import argparse
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
    # A file of tests often stands behind an option: none takes a value only if there is one, and each
    # refuses a value that it cannot mean.
    group = parser.getgroup("podyard", "real Kubernetes clusters (podyard)")
    group.addoption(
        "--podyard-reuse",
        action="store_true",
        help=f"use the cluster {_DEFAULT_REUSED} if it is there, and leave it afterwards",
    )
    group.addoption(
        "--podyard-name",
        type=_cluster_name,
        metavar="NAME",
        help="as --podyard-reuse, with the cluster NAME",
    )
    group.addoption(
        "--podyard-nodes", type=_nodes, default=2, metavar="N", help="nodes of the cluster; default 2"
    )
    group.addoption(
        "--podyard-logs",
        type=_folder,
        default=Path("podyard-logs"),
        metavar="DIR",
        help="where a failed test leaves what the cluster has said; default podyard-logs",
    )


def _cluster_name(text: str) -> str:
    from podyard.cluster.spec import name_problem

    problem = name_problem(text)
    if problem:
        raise argparse.ArgumentTypeError(f"{text!r} is no name for a cluster: it {problem}")
    return text


def _nodes(text: str) -> int:
    from podyard.cluster.spec import MAX_NODES

    # Without a node no pod can answer, and a start ends with one that has.
    if not text.isdecimal() or not 1 <= int(text) <= MAX_NODES:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {MAX_NODES}")
    return int(text)


def _folder(text: str) -> Path:
    if Path(text.partition("::")[0]).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is no folder")
    return Path(text)


@pytest.fixture(scope="session")
def podyard_cluster(request: pytest.FixtureRequest) -> Iterator[PodyardCluster]:
    """A running cluster, the same for all tests of the session."""
    from podyard.testing.cluster import PodyardCluster

    option = request.config.getoption
    reused = option("--podyard-name") or (_DEFAULT_REUSED if option("--podyard-reuse") else None)
    nodes = option("--podyard-nodes")
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
