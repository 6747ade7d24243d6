"""`podyard doctor` says what it saw, what is wrong and what to do; `podyard completion` is for each shell."""

from __future__ import annotations

import asyncio

import pytest
from click.testing import CliRunner

from podyard.cli import doctor
from podyard.cli.commands import Scope
from podyard.cluster import preflight
from podyard.cluster.engine import EngineInfo
from podyard.cluster.preflight import HostFacts

GIB = 1024**3
ENGINE = EngineInfo("28.0.0", "1.48", "linux", "6.1", "/var/lib/docker", 8 * GIB, 4)


class FakeEngine:
    """Has no image yet."""

    async def image_id(self, _: str) -> str:
        return ""


@pytest.fixture
def run(monkeypatch):
    """Runs the command on a host of so many inotify instances."""

    def run(instances: int):
        async def gather(_: object) -> HostFacts:
            return HostFacts(ENGINE, instances, 20 * GIB)

        monkeypatch.setattr(preflight, "gather", gather)
        monkeypatch.setattr(doctor, "with_engine", lambda work: asyncio.run(work(FakeEngine())))
        return CliRunner().invoke(doctor.doctor, ["--nodes", "3"], obj=Scope("demo"))

    return run


def test_a_good_host(run):
    result = run(128)
    assert result.exit_code == 0
    assert result.output.splitlines()[-1] == "this host can carry a cluster of 3 nodes"
    assert "will be built by the first up" in result.output
    assert "fs.inotify.max_user_instances is 128, enough for 8 nodes" in result.output


def test_a_host_that_cannot_carry_it(run):
    result = run(20)
    assert result.exit_code == 3
    assert "fs.inotify.max_user_instances is 20, enough for 1 node\n" in result.output
    assert "error: fs.inotify.max_user_instances is 20; about 48 are needed for 3 nodes" in result.output
    assert "hint: sudo sysctl fs.inotify.max_user_instances=512" in result.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_for_each_shell(shell):
    result = CliRunner().invoke(doctor.completion, [shell])
    assert "_PODYARD_COMPLETE" in result.output
