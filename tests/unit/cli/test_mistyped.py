"""What podyard says of words that it does not know."""

from __future__ import annotations

import sys

import click
import pytest
from click.testing import CliRunner

from podyard.cli.commands import podyard, run
from podyard.cli.mistyped import SuggestingGroup, alike


@pytest.fixture
def said(monkeypatch, capsys):
    """Runs podyard as a shell does, with words that are wrong usage; answers what it says."""
    monkeypatch.delenv("PODYARD_NAME", raising=False)

    def said(*words: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["podyard", *words])
        assert run() == 2
        return capsys.readouterr().err.splitlines()

    return said


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("stauts", "Did you mean 'status'?"),
        ("dwon", "Did you mean 'down'?"),
        ("node killl", "Did you mean 'kill'?"),
        ("component resum", "Did you mean 'resume'?"),
        ("componet", "Did you mean one of: 'component', 'compose', 'completion'?"),
        ("up --nodez 3", "'--nodes'?"),
    ],
)
def test_every_level_suggests(said, words, meant):
    assert meant in said(*words.split())[-1]


def every_group(group: click.Group) -> list[click.Group]:
    context = click.Context(group)
    commands = [group.get_command(context, name) for name in group.list_commands(context)]
    below = [
        each for command in commands if isinstance(command, click.Group) for each in every_group(command)
    ]
    return [group, *below]


def test_every_group_is_one_that_suggests():
    groups = every_group(podyard)
    assert {group.name for group in groups} == {"podyard", "node", "component"}
    assert all(isinstance(group, SuggestingGroup) for group in groups)


def test_what_is_like_nothing_is_told_without_a_guess(said):
    assert said("xyzzy")[-1] == "Error: No such command 'xyzzy'."
    assert alike("xyzzy", ["up"]) == ""


def test_what_containers_run_is_neither_listed_nor_suggested(said):
    listed = CliRunner().invoke(podyard, ["--help"]).output
    assert "PID 1" not in listed
    for word in ("run", "init", "compose-files"):
        assert f"  {word} " not in listed
    for word in ("ru", "initt", "compose-file"):
        assert not any(f"'{hidden}'" in said(word)[-1] for hidden in ("run", "init", "compose-files"))
    # It is there all the same.
    assert CliRunner().invoke(podyard, ["run", "--help"]).exit_code == 0


@pytest.mark.parametrize(
    ("words", "handed"),
    [
        (["run", "web", "--image=nginx"], "podyard kubectl run web --image=nginx"),
        (["run", "web"], "podyard kubectl run web"),
        (["get", "pods"], "podyard kubectl get pods"),
        (["apply", "-f", "a b.yaml"], "podyard kubectl apply -f 'a b.yaml'"),
        (["exec", "web", "--", "sh", "-c", "ls -h"], "podyard kubectl exec web -- sh -c 'ls -h'"),
        (["-n", "test", "get", "pods"], "podyard kubectl -n test get pods"),
        (["--name", "get", "delete", "pod", "web"], "podyard --name get kubectl delete pod web"),
        (["--name=lab", "describe", "node"], "podyard --name=lab kubectl describe node"),
        # podyard's own word with an option of kubectl's.
        (["logs", "web", "-c", "nginx"], "podyard kubectl logs web -c nginx"),
    ],
)
def test_what_is_kubectls_ends_with_how_to_ask_it(said, words, handed):
    assert said(*words)[-1] == f"hint: that is kubectl's: {handed}"


@pytest.mark.parametrize(
    "words",
    ["xyzzy", "up --nodez 3", "logs", "node get", "logs apiserver --tail -1", "push --get x", "--name"],
)
def test_what_is_not_kubectls_has_no_such_hint(said, words):
    assert not any("kubectl's" in line for line in said(*words.split()))
