"""A cluster under modest churn does not grow: three minutes here, an hour with `make soak`.

Each round makes a namespace with a Deployment behind a Service, asks it, rolls it over, scales it, runs
commands and watches in it, and deletes it all again; then nothing of the round may be left.
PODYARD_SOAK_MINUTES says how long.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster import scenario, soak
from tests.cluster.live import Live, eventually, leftovers

MINUTES = float(os.environ.get("PODYARD_SOAK_MINUTES", "3"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(MINUTES * 60 + 300)]


def round_of(live: Live, number: int) -> None:
    """One round, until all of it is gone."""
    space = f"soak-{number}"
    live.kubectl("create", "namespace", space)
    inside = ("-n", space)
    body = [scenario.deployment("web"), scenario.service("web"), scenario.client_pod("client", "web")]
    eventually(
        lambda: live.kubectl(*inside, "get", "serviceaccount", "default", code=None),
        lambda said: "AGE" in said,
    )
    for obj in body:
        obj["metadata"]["namespace"] = space
    live.apply(*body)
    live.kubectl(*inside, "rollout", "status", "deployment/web", "--timeout=80s")
    eventually(lambda: live.kubectl(*inside, "logs", "client", code=None), lambda log: " ok" in log)
    # A client that goes without a word in the midst of its watch.
    watching = subprocess.Popen(
        [str(Path(sys.executable).with_name("kubectl")), *inside, "get", "pods", "-w"],
        env={**os.environ, "KUBECONFIG": str(live.kubeconfig)},
        stdout=subprocess.PIPE,
    )
    with watching:
        assert watching.stdout is not None
        watching.stdout.readline()
        live.kubectl(*inside, "exec", "client", "--", "echo", "here")
        live.kubectl(*inside, "create", "configmap", "one", "--from-literal=a=1")
        live.kubectl(*inside, "label", "configmap", "one", f"round={number}")
        live.kubectl(*inside, "rollout", "restart", "deployment/web")
        live.kubectl(*inside, "rollout", "status", "deployment/web", "--timeout=80s")
        watching.kill()
    live.kubectl(*inside, "scale", "deployment/web", "--replicas=1")
    live.kubectl("delete", "namespace", space, "--timeout=90s")
    eventually(lambda: [leftovers(live, node) for node in live.workers()], lambda found: not any(found))


def test_nothing_grows(live: Live, capsys: pytest.CaptureFixture[str]) -> None:
    end_s = time.monotonic() + MINUTES * 60
    looks: list[soak.Look] = []
    # At least as many rounds as a verdict needs, on however slow a machine.
    while time.monotonic() < end_s or len(looks) < soak.LOOKS:
        round_of(live, len(looks))
        looks.append(soak.take(live))
    shown = f"{len(looks)} rounds\n{soak.table(looks)}"
    if MINUTES > 3:
        with capsys.disabled():
            print(f"\n{shown}")
    assert soak.grown(looks) == [], shown
