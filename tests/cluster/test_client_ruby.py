"""gRPC from another language: Ruby of Debian 13, whose stubs come from `proto/` and nothing else."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import foreign
from tests.cluster.live import Live
from tests.cluster.support import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PROTO = Path(__file__).resolve().parents[2] / "proto"
PROGRAM = Path(__file__).with_name("ruby") / "client.rb"
# Stubs of all our files go into a folder of the container; then the program runs on them.
RUN = """
set -e
cd "$1"
shift
stubs=$(mktemp -d)
grpc_tools_ruby_protoc -I . --ruby_out="$stubs" --grpc_out="$stubs" $(find . -name '*.proto' | cut -c3-)
exec ruby -I "$stubs" "$@"
"""


@pytest.fixture(scope="module")
def said(foreign_image: str, shared_cluster: Cluster, place: str) -> dict[str, Any]:
    """What the program has seen, by what it did."""
    live = Live(shared_cluster.name, shared_cluster.data)
    pki = live.state / "pki"
    command = foreign.command(foreign_image, PROTO, PROGRAM.parent, pki)
    address = f"127.0.0.1:{live.ports()['grpc']}"
    done = subprocess.run(
        [*command, "sh", "-c", RUN, "sh", str(PROTO), str(PROGRAM), address, str(pki), place],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    found = dict(json.loads(line) for line in done.stdout.splitlines())
    assert found["done"] is True
    return found


def test_it_lists_nodes_and_pods(said: dict[str, Any], shared_cluster: Cluster, place: str) -> None:
    assert said["nodes"] == [[f"{shared_cluster.name}-worker-{number}", "True"] for number in (1, 2)]
    assert [place, "ruby", 1] in said["pods"]


def test_a_config_maps_life_is_told_by_a_watch(said: dict[str, Any]) -> None:
    assert said["created"] == ["ruby", 36, {"a": "1"}, [255]]
    assert said["got"] is True
    assert said["updated"] == {"a": "2"}
    assert said["patched"] == {"c": "3"}
    assert said["deleted"] == ["Success", True]
    assert said["events"] == [
        ["ADDED", {"a": "1"}],
        ["MODIFIED", {"a": "2"}],
        ["MODIFIED", {"c": "3"}],
        ["DELETED", {"c": "3"}],
    ]


def test_what_is_refused_has_upstreams_status(said: dict[str, Any]) -> None:
    code, same_text, http, reason, message, causes = said["invalid"]
    assert (code, same_text, http, reason) == (3, True, 422, "Invalid")
    assert message.startswith('ConfigMap "Not A Name" is invalid: ')
    assert causes == ["metadata.name", "metadata.labels"]
    assert said["absent"] == [5, True, 404, "NotFound", 'configmaps "absent" not found', []]


def test_a_pod_runs_and_a_command_in_it(said: dict[str, Any]) -> None:
    assert said["pod"] == "Pending"
    assert said["ready"] == "MODIFIED"
    assert said["command"] == ["got hello\n", "err\n", "NonZeroExitCode", [["ExitCode", "3"]]]
    assert said["log"] == "begun\n"
    assert said["pod deleted"] is True
