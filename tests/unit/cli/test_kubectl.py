"""What `podyard kubectl` hands on, and when it does without a cluster."""

from __future__ import annotations

import os

import click
import pytest

from podyard.cli.commands import Scope
from podyard.cli.kubectl import kubeconfig_for, kubectl
from podyard.cluster.errors import NotFoundError


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "web", "--image=nginx", "--", "sh", "-c", "true"],
        ["--", "-x"],
        ["--", "--name", "kubectls-own"],
        ["get", "pods", "-o", "wide", "--help"],
        ["expose", "pod", "web", "--name", "kubectls-own"],
        [],
    ],
)
def test_every_word_is_handed_on_as_it_is(arguments):
    context = kubectl.make_context("kubectl", list(arguments), obj=Scope("podyard"))
    assert context.params == {"arguments": tuple(arguments)}
    assert context.obj == Scope("podyard")


@pytest.mark.parametrize("option", [["--name", "newcomer"], ["--name=newcomer"]])
def test_a_name_in_front_of_its_words_chooses_the_cluster(option):
    context = kubectl.make_context("kubectl", [*option, "get", "nodes"], obj=Scope("podyard"))
    assert context.params == {"arguments": ("get", "nodes")}
    assert context.obj == Scope("newcomer")


def test_a_name_option_without_a_name_is_wrong_usage():
    with pytest.raises(click.UsageError):
        kubectl.make_context("kubectl", ["--name"])


@pytest.mark.parametrize(
    "words",
    ["", "--help", "-h", "help get", "get pods -h", "version --client", "completion bash", "options"],
)
def test_what_kubectl_answers_by_itself_needs_no_cluster(words, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert kubeconfig_for("none", words.split()) == os.devnull


@pytest.mark.parametrize("words", ["get pods", "version", "exec web -- ls -h", "config view"])
def test_all_else_needs_one(words, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with pytest.raises(NotFoundError, match="there is no cluster 'none'"):
        kubeconfig_for("none", words.split())


def test_where_there_is_a_cluster_even_help_runs_on_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    config = tmp_path / "podyard" / "some" / "kubeconfig"
    config.parent.mkdir(parents=True)
    config.touch()
    assert kubeconfig_for("some", ["--help"]) == str(config)
