"""Options that every command has."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from podyard.cli import cluster, kubectl, machines, up
from podyard.cli.commands import Scope, name_option, pass_scope, podyard


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


def test_the_help_names_the_environment_variable():
    assert "PODYARD_NAME" in CliRunner().invoke(podyard, ["--help"]).output
