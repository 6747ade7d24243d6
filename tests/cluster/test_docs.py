"""The documentation's programs, taken from it and run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import stubs
from tests.cluster.live import Live
from tests.cluster.support import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DOCS = Path(__file__).resolve().parents[2] / "docs"


def program(document: str, number: int = 0) -> str:
    """One of the Python programs of a document, counted from 0."""
    text = (DOCS / document).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)[number]


def test_the_controller_of_the_guide(cluster: Cluster, live: Live, namespace: str, tmp_path: Path) -> None:
    script = tmp_path / "greeting.py"
    script.write_text(program("controllers.md"))
    address = f"127.0.0.1:{live.ports()['grpc']}"
    running = subprocess.Popen([sys.executable, str(script), address, str(live.state / "pki")])

    def text() -> str:
        get = ("get", "configmap", "greeting", "-n", namespace, "-o", "jsonpath={.data.text}")
        return cluster.kubectl(*get, check=False).stdout

    try:
        cluster.kubectl("label", "namespace", namespace, "greet=hello")
        cluster.eventually(lambda: text() == "hello", "a greeting")
        cluster.kubectl("delete", "configmap", "greeting", "-n", namespace)
        cluster.eventually(lambda: text() == "hello", "the greeting again")
        cluster.kubectl("label", "namespace", namespace, "greet=ahoy", "--overwrite")
        cluster.eventually(lambda: text() == "ahoy", "another greeting")
        # The event comes after what it tells.
        events = ("get", "events", "-A", "--field-selector", "reason=Greeted")
        cluster.eventually(lambda: "Said ahoy" in cluster.kubectl(*events).stdout, "the event")
        cluster.kubectl("label", "namespace", namespace, "greet-")
        cluster.eventually(lambda: text() == "", "no greeting")
        assert running.poll() is None
    finally:
        running.terminate()
        running.wait(20)


def test_the_operator_of_the_guide_and_its_test(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "outages.py").write_text(program("operators.md", 1))
    (tmp_path / "test_outages.py").write_text(program("operators.md", 2))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--podyard-name", cluster.name, "test_outages.py"],
        cwd=tmp_path,
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    # It was there before.
    cluster.eventually(
        lambda: cluster.podyard("status", check=False).returncode == 0, "the cluster as it was"
    )


def test_the_program_of_the_grpc_guide(cluster: Cluster, live: Live, namespace: str, tmp_path: Path) -> None:
    text = (DOCS / "grpc.md").read_text(encoding="utf-8")
    printed = re.search(r"It prints:\n\n```\n(.*?)```", text, re.DOTALL)
    assert printed
    script = tmp_path / "typed.py"
    code, count = re.subn(r"(?m)^NAMESPACE = .*$", f"NAMESPACE = {namespace!r}", program("grpc.md", 1))
    assert count == 1
    script.write_text(code)
    made = tmp_path / "stubs"
    made.mkdir()
    address = f"127.0.0.1:{live.ports()['grpc']}"
    done = subprocess.run(
        stubs.command(stubs.make(made), script, address, str(live.state / "pki")),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.stdout, done.stderr) == (printed[1], "")
