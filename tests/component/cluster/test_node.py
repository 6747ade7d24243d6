"""A node container of our image: its guard, its cgroups, and a pod through CRI, also after a kill."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from tests.component.node_container import node_container

SCRIPT = Path(__file__).with_name("cri_pod.py")
NAME = f"podyard-test-{os.getpid()}"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with node_container(NAME, tmp_path_factory.mktemp("state")) as name:
        yield name


def run_in(node: str, *command: str, stdin: bytes = b"") -> str:
    done = subprocess.run(
        ["docker", "exec", "-i", node, *command], input=stdin, capture_output=True, check=False, timeout=90
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def run_pod(node: str, name: str, *options: str) -> dict[str, object]:
    result: dict[str, object] = json.loads(
        run_in(node, "python", "-", name, *options, stdin=SCRIPT.read_bytes()).splitlines()[-1]
    )
    return result


def check_pod(seen: dict[str, object]) -> None:
    conditions = seen["conditions"]
    assert isinstance(conditions, dict)
    assert conditions["RuntimeReady"] is True
    assert conditions["NetworkReady"] is True
    assert "Welcome to nginx!" in str(seen["page"])
    assert str(seen["address"]).startswith("10.244.9.")
    assert seen["resolv"] == "nameserver 10.96.0.10\n"
    assert "GET / HTTP/1.1" in str(seen["log"])


def test_a_pod_runs_and_leaves_nothing(node: str) -> None:
    seen = run_pod(node, "one")
    check_pod(seen)
    assert seen["left"] == []


MOUNTS = """
import pathlib
from kubelet import mounts
outer = pathlib.Path("/run/mounts-test/a b")
inner = outer / "inner"
outer.mkdir(parents=True)
print(mounts.mount_tmpfs(outer, 1 << 20), mounts.mount_tmpfs(outer), outer.stat().st_mode & 0o7777)
inner.mkdir()
print(mounts.mount_tmpfs(inner), oct(inner.stat().st_mode & 0o7777))
print(mounts.below(outer.parent) == [str(outer), str(inner)])
for path in (inner, outer, outer):
    mounts.detach(path)
print(mounts.below(outer.parent), inner.exists())
try:
    mounts.mount_tmpfs(inner)
except OSError as error:
    print(error)
"""


def test_file_systems_in_memory_come_and_go(node: str) -> None:
    said = run_in(node, "python", "-", stdin=MOUNTS.encode()).splitlines()
    assert said == [
        "True False 1023",
        "True 0o755",
        "True",
        "[] False",
        "[Errno 2] No such file or directory: '/run/mounts-test/a b/inner'",
    ]


def test_what_has_no_route_is_refused_at_once(node: str) -> None:
    for address in ("10.244.200.1", "10.96.0.1"):
        curl = subprocess.run(
            ["docker", "exec", node, "curl", "-sS", "--max-time", "5", f"http://{address}/"],
            capture_output=True,
            check=False,
            timeout=30,
        )
        # 7: refused; 28 would be a packet that left and never came back.
        assert curl.returncode == 7, curl.stderr


def test_a_killed_node_comes_back_and_runs_pods(node: str) -> None:
    check_pod(run_pod(node, "kept", "keep"))
    client = docker.from_env()
    container = client.containers.get(node)
    container.kill("SIGKILL")
    container.wait(timeout=10)
    container.start()
    client.close()
    check_pod(run_pod(node, "two"))


def test_orphans_are_reaped(node: str) -> None:
    run_in(node, "sh", "-c", "for i in 1 2 3; do setsid sh -c 'sleep 0.1' & done; sleep 0.5")

    def zombies() -> list[str]:
        states = run_in(node, "sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null || true")
        return [line for line in states.splitlines() if line.rpartition(")")[2].split()[:1] == ["Z"]]

    # Whoever has just ended is one until the first process looks; orphans that nobody reaps are so for ever.
    end_s = time.monotonic() + 30
    while left := zombies():
        assert time.monotonic() < end_s, left
        time.sleep(0.1)
