"""What `podyard node …` says, and when."""

from __future__ import annotations

import asyncio

import pytest
from click.testing import CliRunner

from podyard.cli import machines
from podyard.cli.commands import Scope
from podyard.cluster.errors import ClusterError, NotFoundError, NotReadyError
from podyard.cluster.plan import Observed, ObservedContainer
from podyard.cluster.spec import NODES, ClusterSpec, Placement
from podyard.cluster.state import Home, StateDirectory
from podyard.cluster.verbs import Verbs

NODE = "demo-worker-1"


class FakeEngine:
    """Has one node and does what is asked."""

    host = "127.0.0.1"

    def __init__(self) -> None:
        self.state = "running"
        self.started_at = "t0"
        self.name, self.role = NODE, "worker"
        self.asked = 0

    async def identity(self) -> str:
        return "THIS"

    async def observe(self, _: str) -> Observed:
        return Observed(containers={self.name: await self.inspect(self.name)})

    async def inspect(self, _: str) -> ObservedContainer:
        return ObservedContainer(self.name, self.role, self.state, "", "", started_at=self.started_at)

    async def container_id(self, _: str) -> str:
        return ""  # compose has made nothing here

    async def kill(self, _: str) -> None:
        self.state = "exited"

    stop = kill

    async def start(self, _: str) -> None:
        if self.state == "exited":
            self.state, self.started_at = "running", f"{self.started_at}+"

    async def pause(self, _: str) -> None:
        self.state = "paused"

    async def thaw(self, _: str) -> None:
        self.state = "running" if self.state == "paused" else self.state

    async def neighbours(self, *_: str) -> list[tuple[str, str]]:
        return [("172.28.0.16", "02:00:00:00:00:01")]

    async def run_in(self, name: str, argv: list[str]) -> tuple[int, str]:
        assert self.state == "running", "the engine refuses"
        self.asked += 1
        # A component needs its time.
        return (0, "ok\n200") if self.asked > 2 else (7, "curl: (7)\n000")

    async def in_network_of(self, name: str, argv: list[str], text: str) -> str:
        assert self.state in {"running", "paused"}
        return ""


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def node(engine, tmp_path, monkeypatch):
    """Runs `podyard node` on the cluster demo."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(machines, "with_engine", lambda work: asyncio.run(work(engine)))

    async def heartbeat(_: Verbs, found: ObservedContainer) -> str:
        return "12:00:00"

    monkeypatch.setattr(Verbs, "heartbeat", heartbeat)
    return lambda *words: CliRunner().invoke(machines.node, words, obj=Scope("demo"))


@pytest.fixture
def run(node, monkeypatch):
    """The lines of what it says; waiting leaves one."""

    async def until_ready(
        _: Verbs, found: ObservedContainer, *, ready: bool, timeout_s: float, after: str
    ) -> None:
        machines.click.echo(f"waits for {found.name}: {ready} {after}".rstrip(), err=True)

    monkeypatch.setattr(Verbs, "until_ready", until_ready)
    return lambda *words: node(*words).output.splitlines()


@pytest.mark.parametrize(
    ("verb", "expected", "happened"),
    [
        ("kill", "NotReady in about 50 s", "NotReady after 0 s"),
        ("start", "Ready within about 15 s", "Ready after 0 s"),
    ],
)
def test_expected_is_said_before_the_wait_and_happened_after_it(run, engine, verb, expected, happened):
    engine.state = "exited" if verb == "start" else "running"
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


BREAKS = {"kill": "start", "stop": "start", "pause": "resume", "partition": "heal"}


@pytest.mark.parametrize(("breaks", "mends"), BREAKS.items())
def test_what_was_done_already_is_said_to_be(run, breaks, mends):
    for verb in (breaks, mends):
        assert "nothing to do" not in run(verb, "worker-1")[-1]
        assert run(verb, "worker-1")[-1].endswith("; nothing to do")


@pytest.mark.parametrize(
    ("breaks", "tried", "why", "needed"),
    [
        ("partition", "start", "it is cut off", "heal"),
        ("partition", "resume", "it is cut off", "heal"),
        ("pause", "heal", "it is frozen", "resume"),
    ],
)
def test_another_way_back_than_is_needed_says_which_is(node, breaks, tried, why, needed):
    node(breaks, "worker-1")
    said = node(tried, "worker-1")
    assert said.output.splitlines()[-1] == f"{NODE}: {why}; next: podyard --name demo node {needed} worker-1"
    assert said.exit_code == 0
    # And nobody waits for what cannot come.
    waited = node(tried, "worker-1", "--wait").exception
    assert isinstance(waited, NotReadyError)
    assert str(waited) == f"{NODE} cannot become Ready: {why}"
    assert waited.hint == f"podyard --name demo node {needed} worker-1"


@pytest.mark.parametrize("tried", ["resume", "heal", "pause", "partition"])
def test_what_does_not_run_has_to_be_started(node, tried):
    node("kill", "worker-1")
    refused = node(tried, "worker-1").exception
    assert isinstance(refused, ClusterError)
    assert (str(refused), refused.hint) == (
        f"{NODE} does not run (it is exited)",
        "podyard --name demo node start worker-1",
    )


def test_a_cut_goes_with_the_network_when_a_node_starts_anew(run):
    run("partition", "worker-1")
    run("kill", "worker-1")
    assert "Ready within" in run("start", "worker-1")[-1]
    assert run("heal", "worker-1")[-1].endswith("it was not cut off; nothing to do")


def test_a_role_is_enough_where_it_has_one_container(node, engine):
    assert node("kill", "worker").output.splitlines()[-1].startswith(f"{NODE}: NotReady")
    refused = node("kill", "etcd").exception
    assert isinstance(refused, NotFoundError)
    assert refused.hint == f"there are: {NODE}"


def test_a_component_is_named_as_one():
    assert Verbs(FakeEngine(), "podyard").command("heal", "podyard-etcd-1") == "podyard component heal etcd-1"  # type: ignore[arg-type]


@pytest.fixture
def component(engine, tmp_path, monkeypatch):
    """Runs `podyard component` on the cluster demo, which has one etcd member."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(machines, "with_engine", lambda work: asyncio.run(work(engine)))
    monkeypatch.setattr("podyard.cluster.verbs._POLL_S", 0.001)
    engine.name, engine.role = "demo-etcd-1", "etcd"
    return lambda *words: CliRunner().invoke(machines.component, words, obj=Scope("demo"))


def test_a_component_is_waited_for_until_it_calls_itself_ready(component, engine):
    component("kill", "etcd-1")
    done = component("start", "etcd-1", "--wait")
    assert done.output.splitlines()[-1] == "demo-etcd-1: Ready after 0 s"
    assert (done.exit_code, engine.asked) == (0, 3)


def test_a_component_that_does_not_get_ready_says_what_it_lacks(component, engine, monkeypatch):
    monkeypatch.setattr(machines, "_WAIT_S", 0.01)
    engine.asked = -(10**9)
    failed = component("resume", "etcd-1", "--wait").exception
    assert isinstance(failed, NotReadyError)
    assert str(failed) == "demo-etcd-1 after 0.01 s: does not answer its health check"


def test_nobody_waits_for_a_component_that_another_verb_has_to_mend_first(component, engine):
    component("partition", "etcd-1")
    failed = component("start", "etcd-1", "--wait").exception
    assert str(failed) == "demo-etcd-1 cannot become Ready: it is cut off"
    assert engine.asked == 0


@pytest.mark.parametrize("verb", BREAKS)
def test_what_breaks_a_component_has_broken_it_when_it_returns(component, verb):
    assert component(verb, "etcd-1", "--wait").exit_code == 2
    assert component(BREAKS[verb], "--help").output.count("--wait") == 1
    assert "--wait" not in component(verb, "--help").output
