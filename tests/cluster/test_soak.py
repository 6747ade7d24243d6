"""A cluster under modest churn does not grow: three minutes here, an hour with `make soak`.

Each round makes a namespace with a Deployment behind a Service, asks it, rolls it over, scales it, runs
commands and watches in it, and deletes it all again; then nothing of the round may be left.
PODYARD_SOAK_MINUTES says how long.

The cluster is one of its own, since a store that keeps five minutes of history does grow for five minutes: it
keeps a twelfth of the run, so that what grows in the last two thirds is no history.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from apiserver import compaction
from tests.cluster import scenario, soak
from tests.cluster.kubectls import Kubectl
from tests.cluster.live import Live, eventually, leftovers
from tests.cluster.support import Cluster, brought_up

MINUTES = float(os.environ.get("PODYARD_SOAK_MINUTES", "3"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(MINUTES * 60 + 300)]

HISTORY_S = min(compaction.PERIOD_S, MINUTES * 60 / 12)


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    wish = {
        "apiVersion": "podyard.io/v1alpha1",
        "kind": "Cluster",
        "components": {"apiserver": {"etcd_compaction_interval_s": HISTORY_S}},
    }
    data = tmp_path_factory.mktemp("data")
    with brought_up(f"soak-{os.getpid()}", data, "--config", "-", input=json.dumps(wish)) as cluster:
        yield cluster


def round_of(live: Live, kubectl: Kubectl) -> None:
    """One round in a namespace of its own, until all of it is gone."""
    kubectl.make_namespace()
    objects = [scenario.deployment("web"), scenario.service("web"), scenario.client_pod("client", "web")]
    kubectl.run("apply", "-f", "-", input={"apiVersion": "v1", "kind": "List", "items": objects})
    kubectl.run("rollout", "status", "deployment/web", "--timeout=80s")
    eventually(lambda: kubectl.call("logs", "client").stdout, lambda log: b" ok" in log)
    # A client that goes without a word in the midst of its watch.
    with kubectl.going("get", "pods", "-w") as watching:
        assert watching.stdout is not None
        watching.stdout.readline()
        kubectl.run("exec", "client", "--", "echo", "here")
        kubectl.run("create", "configmap", "one", "--from-literal=a=1")
        kubectl.run("label", "configmap", "one", "changed=yes")
        kubectl.run("rollout", "restart", "deployment/web")
        kubectl.run("rollout", "status", "deployment/web", "--timeout=80s")
    kubectl.run("scale", "deployment/web", "--replicas=1")
    kubectl.remove_namespace()
    eventually(lambda: [leftovers(live, node) for node in live.workers()], lambda found: not any(found))


def test_nothing_grows(
    cluster: Cluster, live: Live, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end_s = time.monotonic() + MINUTES * 60
    looks: list[soak.Look] = []
    # At least as many rounds as a verdict needs, on however slow a machine.
    while time.monotonic() < end_s or len(looks) < soak.LOOKS:
        round_of(live, Kubectl(cluster, kubeconfig, f"soak-{len(looks)}"))
        looks.append(soak.take(live))
    shown = f"{len(looks)} rounds\n{soak.table(looks)}"
    if MINUTES > 3:
        with capsys.disabled():
            print(f"\n{shown}")
    assert soak.grown(looks) == [], shown
