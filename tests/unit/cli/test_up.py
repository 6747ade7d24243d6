"""What `podyard up` asks for, from its options, a file and what it was told before."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from podyard.cli import up, wish
from podyard.cli.commands import podyard
from podyard.cluster import bringup
from podyard.cluster.bringup import UpRequest, UpResult
from podyard.cluster.errors import SpecError
from podyard.cluster.settings import Settings
from podyard.cluster.spec import ClusterSpec, Placement, Port, Publication
from podyard.cluster.state import StateDirectory

NOWHERE = Placement("172.28.0.0/22", 1500)
FILE = wish.EXAMPLE.replace("extraCAs: [company-ca.crt]\n", "")
WEB = (Publication(1, Port(30080, 8080)),)


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Runs `podyard WORDS`; answers what bring-up was asked, and the output."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("PODYARD_NAME", raising=False)
    monkeypatch.setattr(up, "with_engine", lambda work: asyncio.run(work(None)))
    (tmp_path / "lab.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path)

    def run(*words: str, input: str | None = None) -> tuple[UpRequest, str]:
        requests: list[UpRequest] = []

        async def remember(_engine: object, request: UpRequest, _progress: object) -> UpResult:
            requests.append(request)
            return UpResult(request.spec, NOWHERE, ())

        monkeypatch.setattr(bringup, "up", remember)
        done = CliRunner().invoke(podyard, words, input=input)
        if done.exception is not None and not requests:
            raise done.exception
        StateDirectory(requests[0].spec.name).save_placement(requests[0].spec, NOWHERE)
        return requests[0], done.output

    return run


def test_a_file_says_all_and_is_kept(asked):
    request, said = asked("up", "--config", "lab.yaml")
    assert (request.spec.name, request.nodes) == ("lab", 3)
    assert request.spec.schedulers == 2
    assert "127.0.0.1:8080/tcp leads to port 30080 of lab-worker-1" in said
    again, _ = asked("--name", "lab", "up")
    assert again.nodes is None
    assert Settings.of(again.spec) == Settings.of(request.spec)


def test_a_file_from_standard_input(asked):
    assert asked("up", "--config", "-", input=FILE)[0] == asked("up", "--config", "lab.yaml")[0]


def test_options_win_over_the_file(asked):
    options = ("--nodes", "1", "--publish", "9090:9@2", "--node-grace-seconds", "15")
    request, _ = asked("up", "--config", "lab.yaml", *options)
    assert (request.nodes, request.spec.node_grace_s) == (1, 15)
    assert request.spec.publish == (Publication(2, Port(9, 9090)),)


def test_a_file_replaces_what_was_told_before_but_whose_it_is(asked):
    owned = Settings(publish=WEB, toleration_s=5, labels=(("owner", "a"),)).applied(ClusterSpec("lab"))
    StateDirectory("lab").save_placement(owned, NOWHERE)
    request, _ = asked(
        "up", "--config", "-", input="apiVersion: podyard.io/v1alpha1\nkind: Cluster\nname: lab"
    )
    assert Settings.of(request.spec) == Settings(labels=(("owner", "a"),))


def test_what_is_published_stays_until_it_is_told_anew(asked):
    assert asked("up", "--publish", "8080:30080")[0].spec.publish == WEB
    assert asked("up")[0].spec.publish == WEB
    assert asked("up", "--publish", "8081:1", "--publish", "8082:2")[0].spec.publish != WEB
    assert asked("up", "--publish", "none")[0].spec.publish == ()
    assert asked("up")[0].spec.publish == ()


@pytest.mark.parametrize(
    ("words", "environment"), [(("--name", "other"), {}), ((), {"PODYARD_NAME": "other"})]
)
def test_two_names_are_one_too_many(asked, monkeypatch, words, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SpecError, match=r"lab\.yaml is for the cluster 'lab', and the command for 'other'"):
        asked(*words, "up", "--config", "lab.yaml")
    assert asked("up", "--config", "lab.yaml", "--name", "lab")[0].spec.name == "lab"


def test_a_file_that_is_not_there():
    done = CliRunner().invoke(podyard, ["up", "--config", str(Path("nowhere.yaml"))])
    assert done.exit_code == 2
    assert "does not exist" in done.output


def test_the_help_shows_a_file():
    assert FILE.splitlines()[0] in CliRunner().invoke(podyard, ["up", "--help"]).output
