"""What `podyard node …` says, and when."""

from __future__ import annotations

import asyncio

import pytest
from click.testing import CliRunner

from podyard.cli import machines
from podyard.cli.commands import Scope
from podyard.cluster.errors import ClusterError
from podyard.cluster.plan import Observed, ObservedContainer
from podyard.cluster.spec import ClusterSpec, Placement
from podyard.cluster.state import Home, StateDirectory
from podyard.cluster.verbs import NODES, Verbs

NODE = "demo-worker-1"


class FakeEngine:
    """Has one node and does all that is asked."""

    host = "127.0.0.1"

    async def identity(self) -> str:
        return "THIS"

    async def observe(self, _: str) -> Observed:
        return Observed(containers={NODE: ObservedContainer(NODE, "worker", "running", "", "")})

    async def container_id(self, _: str) -> str:
        return ""  # compose has made nothing here

    async def kill(self, _: str) -> None:
        """Done."""

    start = thaw = kill


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs `podyard node` on the cluster demo; waiting leaves a line."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(machines, "with_engine", lambda work: asyncio.run(work(FakeEngine())))

    async def until_ready(_: Verbs, name: str, *, ready: bool, timeout_s: float, after: str) -> None:
        machines.click.echo(f"waits for {name}: {ready} {after}".rstrip(), err=True)

    async def heartbeat(_: Verbs, name: str) -> str:
        return "12:00:00"

    monkeypatch.setattr(Verbs, "heartbeat", heartbeat)
    monkeypatch.setattr(Verbs, "until_ready", until_ready)
    return lambda *words: CliRunner().invoke(machines.node, words, obj=Scope("demo")).output.splitlines()


@pytest.mark.parametrize(
    ("verb", "expected", "happened"),
    [
        ("kill", "NotReady in about 50 s", "NotReady after 0 s"),
        ("start", "Ready within about 15 s", "Ready after 0 s"),
    ],
)
def test_expected_is_said_before_the_wait_and_happened_after_it(run, verb, expected, happened):
    lines = run(verb, "worker-1", "--wait")
    said = next(at for at, line in enumerate(lines) if line.startswith(f"{NODE}: {expected}"))
    waits = next(at for at, line in enumerate(lines) if line.startswith("waits for"))
    assert said < waits
    assert lines[-1] == f"{NODE}: {happened}"


def test_what_was_said_before_the_verb_does_not_count(run):
    # Within the grace the API server still calls a dead node Ready.
    assert f"waits for {NODE}: True 12:00:00" in run("start", "worker-1", "--wait")
    assert f"waits for {NODE}: False" in run("kill", "worker-1", "--wait")


def test_without_a_wait_the_last_line_says_what_to_expect(run):
    assert run("kill", "worker-1")[-1].startswith(f"{NODE}: NotReady in about 50 s")


def test_a_node_of_a_cluster_on_another_engine_is_left_alone(run):
    placement = Placement("172.28.0.0/22", 1500)
    StateDirectory("demo").save_placement(ClusterSpec("demo"), placement, Home("OTHER", "build.example"))
    with pytest.raises(
        ClusterError, match=r"lives on another engine \(id OTHER, reached at build\.example\)"
    ):
        asyncio.run(Verbs(FakeEngine(), "demo").find("worker-1", NODES))  # type: ignore[arg-type]
