"""What a shell completes: names of what there is, and never a word of complaint."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pytest
from click.shell_completion import ShellComplete

from podyard.cli import completing
from podyard.cli.commands import podyard
from podyard.cluster import engine
from podyard.cluster.plan import ObservedContainer

ROLES = ["etcd-1", "apiserver-1", "scheduler-1", "worker-1", "worker-2"]


def of_cluster(name: str, *short: str) -> list[ObservedContainer]:
    return [ObservedContainer(f"{name}-{one}", one.rpartition("-")[0], "running", "", "") for one in short]


CLUSTERS = {"podyard": of_cluster("podyard", *ROLES), "lab": of_cluster("lab", "worker-1", "files")}


@pytest.fixture
def complete(monkeypatch, capsys):
    """What podyard offers for a line whose last word is not done."""
    monkeypatch.delenv("PODYARD_NAME", raising=False)
    monkeypatch.setattr(engine, "glimpse", lambda _: CLUSTERS)

    def complete(line: str) -> list[str]:
        *before, incomplete = line.split(" ")
        shell = ShellComplete(podyard, {}, "podyard", "_PODYARD_COMPLETE")
        offered = [item.value for item in shell.get_completions(before, incomplete)]
        assert capsys.readouterr() == ("", "")
        return offered

    return complete


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("node kill w", ["worker-1", "worker-2"]),
        ("node kill ", ["worker-1", "worker-2"]),
        ("node kill podyard-worker-1", ["podyard-worker-1"]),
        ("node kill --wait worker-2", ["worker-2"]),
        ("node remove ", ["worker-1", "worker-2"]),
        ("node kill etcd", []),
        ("component kill ", ["apiserver-1", "etcd-1", "scheduler-1"]),
        ("component resume a", ["apiserver-1"]),
        ("logs a", ["apiserver-1"]),
        (
            "logs ",
            ["apiserver-1", "etcd-1", "scheduler-1", "worker-1", "worker-2", "export", "podyard-registry"],
        ),
        ("--name ", ["lab", "podyard"]),
        ("--name l", ["lab"]),
        ("down --name ", ["lab", "podyard"]),
        ("node kill --name ", ["lab", "podyard"]),
        ("--name lab node kill ", ["worker-1"]),
        ("node --name lab kill ", ["worker-1"]),
        ("node kill --name lab ", ["worker-1"]),
        ("node kill --name lab lab-", ["lab-worker-1"]),
        ("--name lab component kill ", []),
        ("--name none logs e", ["export"]),
    ],
)
def test_names_are_those_of_what_there_is(complete, line, offered):
    assert complete(line) == offered


def test_the_environment_chooses_the_cluster_too(complete, monkeypatch):
    monkeypatch.setenv("PODYARD_NAME", "lab")
    assert complete("node kill ") == ["worker-1"]
    assert complete("--name podyard node kill ") == ["worker-1", "worker-2"]


def test_a_name_that_no_cluster_can_have_is_not_complained_about(complete):
    assert complete("--name BAD_ node kill ") == []
    # Behind the command's word click forgets what is refused.
    assert complete("node --name BAD_ kill ") == ["worker-1", "worker-2"]


def test_podyards_own_words_are_those_of_its_help_and_import_nothing(complete, monkeypatch):
    monkeypatch.setattr("podyard.cli.commands.load_command", pytest.fail)
    offered = complete("")
    assert offered[:3] == ["up", "build", "down"]
    assert not {"run", "init", "compose-files"} & set(offered)
    assert complete("sta") == ["status"]


ASKED = ["node kill ", "component kill ", "logs w", "--name ", "down --name "]


@pytest.mark.parametrize("line", ASKED)
def test_an_engine_that_refuses_is_not_mentioned(complete, monkeypatch, line):
    def refuse(_: float) -> None:
        raise OSError("no engine")

    monkeypatch.setattr(engine, "glimpse", refuse)
    assert complete(line) == []


@pytest.mark.parametrize("line", ASKED)
def test_an_engine_that_does_not_answer_is_not_waited_for(complete, monkeypatch, line):
    answers = threading.Event()
    monkeypatch.setattr(engine, "glimpse", lambda _: answers.wait() and CLUSTERS)
    monkeypatch.setattr(completing, "PATIENCE_S", 0.01)
    assert complete(line) == []
    answers.set()


def test_an_import_that_fails_is_not_mentioned(complete, monkeypatch):
    monkeypatch.setitem(sys.modules, "podyard.cluster.engine", None)
    monkeypatch.delattr("podyard.cluster.engine")
    assert complete("--name ") == []


# Stands in for kubectl: it says how it was asked, and answers as the real one does.
KUBECTL = """#!/bin/sh
echo "$KUBECONFIG" "$@" >> "$0.asked"
cat "$0.answer"
"""


@pytest.fixture
def kubectl(tmp_path, monkeypatch):
    """Sets what a kubectl of its own answers; answers with how it was asked."""
    program = tmp_path / "kubectl"
    program.write_text(KUBECTL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "data/podyard/lab").mkdir(parents=True)
    (tmp_path / "data/podyard/lab/kubeconfig").touch()

    def answer(text: str) -> Callable[[], list[str]]:
        (tmp_path / "kubectl.answer").write_text(text)
        return lambda: (tmp_path / "kubectl.asked").read_text().replace(f"{tmp_path}/", "").splitlines()

    return answer


@pytest.mark.parametrize(
    ("answer", "offered"),
    [
        ("web-1\tready\nweb-2\n:4\n", ["plain web-1 ready", "plain web-2 "]),
        (":4\n", []),
        (":0\n", ["file we "]),
        ("json\nyaml\n:8\n", ["file we "]),
        (":16\n", ["dir we "]),
        ("web-1\n:5\n", []),
        ("web-1\n", []),
        ("", []),
    ],
)
def test_kubectls_words_are_what_it_offers(kubectl, answer, offered):
    asked = kubectl(answer)
    shell = ShellComplete(podyard, {}, "podyard", "_PODYARD_COMPLETE")
    items = shell.get_completions(["--name", "lab", "kubectl", "get", "-n", "one", "pods"], "we")
    assert [f"{item.type} {item.value} {item.help or ''}" for item in items] == offered
    assert asked() == ["data/podyard/lab/kubeconfig __complete get -n one pods we"]


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("kubectl ", ["/dev/null __complete "]),
        ("kubectl get --sh", ["/dev/null __complete get --sh"]),
        ("kubectl --name lab get p", ["data/podyard/lab/kubeconfig __complete get p"]),
        ("kubectl exec web -- l", ["/dev/null __complete exec web -- l"]),
        ("--name BAD_ kubectl ge", ["/dev/null __complete ge"]),
        # bash takes a word apart at "=".
        ("kubectl get -n = kube-", ["/dev/null __complete get -n=kube-"]),
        ("kubectl get --all = true --namespace =", ["/dev/null __complete get --all=true --namespace "]),
        ("kubectl get --all = true p", ["/dev/null __complete get --all=true p"]),
    ],
)
def test_kubectl_is_asked_of_the_cluster_that_is_chosen(complete, kubectl, line, asked):
    how = kubectl("word\n:4\n")
    assert complete(line) == ["word"]
    assert how() == asked


def test_a_name_before_kubectls_words_is_a_clusters(complete):
    assert complete("kubectl --name ") == ["lab", "podyard"]
    assert complete("kubectl --name l") == ["lab"]


def test_a_kubectl_that_fails_or_hangs_offers_nothing(complete, kubectl, monkeypatch, tmp_path):
    kubectl("word\n:4\n")
    for script in ("echo word; exit 1", "exec sleep 60"):
        (tmp_path / "kubectl").write_text(f"#!/bin/sh\n{script}\n")
        monkeypatch.setattr(completing, "PATIENCE_S", 0.2)
        assert complete("kubectl ge") == []
    (tmp_path / "kubectl").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert complete("kubectl ge") == []
