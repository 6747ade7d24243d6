"""What `podyard status` and `podyard list` show of a cluster."""

from __future__ import annotations

import asyncio

import click
import pytest
from click.testing import CliRunner

from podyard.cli import cluster
from podyard.cli.commands import podyard
from podyard.cluster.errors import ClusterError
from podyard.cluster.plan import Observed, ObservedContainer
from podyard.cluster.rest import NodeState
from podyard.cluster.spec import ClusterSpec, HostPorts, Placement
from podyard.cluster.state import Home, StateDirectory

SERVER, NODE = "demo-apiserver-1", "demo-worker-1"


class FakeEngine:
    """Has these containers."""

    host = "127.0.0.1"

    def __init__(self, **states: str) -> None:
        self._containers = {
            f"demo-{role}-1": ObservedContainer(f"demo-{role}-1", role, state, "", "", {"demo": "172.28.0.9"})
            for role, state in states.items()
        }
        self.health: dict[str, tuple[int, str]] = {}

    async def identity(self) -> str:
        return "THIS"

    async def observe(self, name: str) -> Observed:
        assert name == "demo"
        return Observed(containers=self._containers)

    async def inspect(self, name: str) -> ObservedContainer:
        return self._containers[name]

    async def container_id(self, _: str) -> str:
        return ""  # compose has made nothing here

    async def run_in(self, name: str, argv: list[str]) -> tuple[int, str]:
        assert self._containers[name].state == "running", "the engine refuses"
        return self.health.get(name, (0, "ok\n200"))

    async def clusters(self) -> dict[str, list[ObservedContainer]]:
        return {"demo": list(self._containers.values())}


class FakeProbe:
    """An API server to which every node is Ready."""

    async def readyz(self) -> None:
        """Is ready."""

    async def nodes(self) -> list[NodeState]:
        return [NodeState(NODE, True, "")]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs podyard on a cluster whose containers are in the given states."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    placement = Placement("172.28.0.0/22", 1500, {SERVER: HostPorts(26443, 26444, 26445)})
    StateDirectory("demo").save_placement(ClusterSpec("demo", nodes=1), placement)
    monkeypatch.setattr(cluster.bringup, "probe", lambda *_: FakeProbe())

    def run(*words: str, terminal: bool = False, lacking: str = "", **states: str):
        engine = FakeEngine(**states)
        if lacking:
            engine.health[lacking] = (0, "[-]informers failed: reason withheld\n500")
        monkeypatch.setattr(cluster, "with_engine", lambda work: asyncio.run(work(engine)))
        # What goes to a terminal, or what is left of it in a pipe.
        return CliRunner().invoke(podyard, words, color=terminal)

    return run


def test_a_cluster_of_another_engine_has_no_status_and_no_address_here(run):
    elsewhere = Home("OTHER", "build.example")
    placement = Placement("172.28.0.0/22", 1500, {SERVER: HostPorts(26443, 26444, 26445)})
    StateDirectory("demo").save_placement(ClusterSpec("demo", nodes=1), placement, elsewhere)
    refused = run("--name", "demo", "status", apiserver="running").exception
    assert isinstance(refused, ClusterError)
    assert "build.example" in str(refused)
    listed = run("list", apiserver="running")
    assert columns(listed.output)["demo"][-2:] == ["-", "-"]
    assert listed.stderr.endswith("is of a cluster of this name on another engine\n")


@pytest.mark.parametrize(
    ("states", "why"),
    [
        ({}, "its state is not in {}, but where XDG_DATA_HOME or HOME led when it was made"),
        ({"files": "exited"}, "it was made by compose; podyard --name demo status fetches its addresses"),
    ],
)
def test_a_cluster_without_an_address_here_is_listed_with_the_reason(run, states, why):
    StateDirectory("demo").remove()
    result = run("list", apiserver="running", **states)
    assert columns(result.stdout)["demo"][-2:] == ["-", "-"]
    assert result.stderr == f"demo: {why.format(StateDirectory('demo').path.parent)}\n"


def test_a_state_that_cannot_be_read_is_told_by_list(run):
    (StateDirectory("demo").path / "cluster.yaml").unlink()
    said = run("list", apiserver="running").stderr
    assert said.endswith("does not say its addresses; podyard --name demo up makes that anew\n")


def test_a_cluster_with_an_address_has_no_footnote(run):
    assert run("list", apiserver="running").stderr == ""


def columns(output: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split() for line in output.splitlines() if line}


def test_what_runs_is_ready_when_the_api_server_says_so(run):
    result = run("status", "--name", "demo", apiserver="running", worker="running", scheduler="running")
    rows = columns(result.output)
    assert [rows[name][3] for name in (SERVER, NODE, "demo-scheduler-1")] == ["yes", "yes", "yes"]
    assert result.exit_code == 0


@pytest.mark.parametrize("role", ["etcd", "scheduler", "controller-manager"])
def test_a_component_is_ready_by_its_own_word(run, role):
    states = {"apiserver": "running", "worker": "running", role: "running"}
    result = run("status", "--name", "demo", lacking=f"demo-{role}-1", **states)
    assert columns(result.output)[f"demo-{role}-1"][3:6] == ["no:", "informers", "failed"]
    assert result.exit_code == 1


@pytest.mark.parametrize("state", ["paused", "exited"])
def test_what_does_not_run_is_not_ready_whatever_the_api_server_says(run, state):
    result = run("status", "--name", "demo", apiserver="running", worker=state, scheduler=state)
    rows = columns(result.output)
    assert rows[NODE][2:5] == rows["demo-scheduler-1"][2:5] == [state, "no:", state]
    assert result.exit_code == 1


def test_of_a_node_nothing_is_known_while_the_api_server_is_frozen(run):
    result = run("status", "--name", "demo", apiserver="paused", worker="running")
    rows = columns(result.output)
    assert (rows[SERVER][3:5], rows[NODE][3]) == (["no:", "paused"], "unknown")


def test_both_addresses_of_the_api_server_are_shown(run):
    states = {"apiserver": "running", "worker": "running"}
    expected = f"{SERVER}: REST https://127.0.0.1:26443, gRPC 127.0.0.1:26444 (TLS)"
    assert expected in run("status", "--name", "demo", **states).output.splitlines()
    row = columns(run("list", **states).output)["demo"]
    assert row == ["demo", "1", "2/2", "https://127.0.0.1:26443", "127.0.0.1:26444"]


STATES = {"apiserver": "running", "worker": "paused", "scheduler": "exited"}


@pytest.mark.parametrize("words", [("status", "--name", "demo"), ("list",)])
def test_colours_are_for_terminals_only(run, monkeypatch, words):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    piped = run(*words, **STATES).output
    shown = run(*words, terminal=True, **STATES).output
    assert "\x1b" not in piped
    assert click.unstyle(shown) == piped
    assert "\x1b" in shown
    monkeypatch.setenv("NO_COLOR", "1")
    assert run(*words, terminal=True, **STATES).output == piped
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("TERM", "dumb")
    assert run(*words, terminal=True, **STATES).output == piped


def test_the_colour_says_how_it_is(run, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    shown = run("status", "--name", "demo", terminal=True, **STATES).output
    for word, colour in {"running": "green", "paused": "yellow", "exited": "red", "yes": "green"}.items():
        assert click.style(word, fg=colour) in shown
    assert click.style("no: exited", fg="red") in shown
    assert click.style("2/3", fg="green") not in run("list", terminal=True, **STATES).output
