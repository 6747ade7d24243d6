"""Options that every command has."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from podyard.cli import cluster, kubectl, machines, up
from podyard.cli.commands import Scope, name_option, pass_scope, podyard, run
from podyard.cluster.errors import NotFoundError, SpecError
from podyard.cluster.rest import LOOK_AT_SERVER, Unreachable
from podyard.cluster.spec import MAX_NODES


@click.group()
@name_option
def group() -> None:
    """A group as `node` is."""


@group.command("leaf")
@pass_scope
def leaf(scope: Scope) -> None:
    """A command as they all are."""
    click.echo(scope.name)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("leaf", "before"),
        ("leaf --name after", "after"),
        ("--name between leaf", "between"),
        ("--name between leaf --name after", "after"),
    ],
)
def test_the_last_name_chooses_the_cluster(words, expected):
    result = CliRunner().invoke(group, words.split(), obj=Scope("before"))
    assert result.output.strip() == expected


def test_every_command_on_a_cluster_takes_a_name():
    commands = [up.up, cluster.down, cluster.status, cluster.logs, kubectl.kubeconfig]
    for of in (machines.node, machines.component):
        commands += [of, *of.commands.values()]
    assert [c.name for c in commands if not any("--name" in p.opts for p in c.params)] == []


@pytest.mark.parametrize("word", ["up", "doctor", "compose", "compose-files"])
def test_every_number_of_nodes_has_the_bounds_of_a_cluster(word):
    done = CliRunner().invoke(podyard, [word, "--nodes", str(MAX_NODES + 1)])
    assert done.exit_code == 2
    assert f"0<=x<={MAX_NODES}" in done.output
    assert f"0<=x<={MAX_NODES}" in CliRunner().invoke(podyard, [word, "--help"]).output


def test_no_command_has_a_number_of_nodes_that_is_not_tested_above():
    context = click.Context(podyard)
    commands = {name: podyard.get_command(context, name) for name in podyard.list_commands(context)}
    found = {n for n, each in commands.items() if each and any("--nodes" in p.opts for p in each.params)}
    assert found == {"up", "doctor", "compose", "compose-files"}


def test_the_help_names_the_environment_variable():
    assert "PODYARD_NAME" in CliRunner().invoke(podyard, ["--help"]).output


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (NotFoundError("it is gone", hint="look\nelsewhere"), 4, ["it is gone", "look", "elsewhere"]),
        (Unreachable("no answer"), 1, ["no answer", LOOK_AT_SERVER]),
        (
            OSError(28, "No space left on device", "/data/cluster.yaml"),
            1,
            ["/data/cluster.yaml: No space left", "hint: make room on that disk"],
        ),
        (OSError(13, "Permission denied", "/data"), 1, ["/data: Permission denied", "this user may"]),
        (OSError(30, "Read-only file system", "/data"), 1, ["/data: Read-only", "is not read-only"]),
        (OSError(2, "No such file", "/data"), 1, ["/data: No such file", "the name is right"]),
        (OSError(20, "Not a directory", "/data"), 1, ["/data: Not a directory", "hint: see what is there"]),
        (KeyboardInterrupt(), 130, ["interrupted", "podyard up goes on from where it was"]),
    ],
)
def test_a_failure_is_told_with_what_to_do_next(monkeypatch, capsys, error, code, said):
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(podyard, "main", fail)
    assert run() == code
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("hint: ")
    # What is no terminal gets no colours.
    assert not any("\x1b" in line for line in lines)
    for words in said:
        assert any(words in line for line in lines)


@pytest.mark.parametrize("name", ["", ".", "..", "../other", "a/b", "Upper", "bridge", "1a", "x" * 33])
@pytest.mark.parametrize("words", [["--name", "{}", "down"], ["down", "--name", "{}"]])
def test_what_is_no_name_is_refused_before_anything_is_looked_up(words, name):
    done = CliRunner().invoke(podyard, [word.format(name) for word in words])
    assert isinstance(done.exception, SpecError)
    assert f"{name!r} is no name for a cluster" in str(done.exception)
