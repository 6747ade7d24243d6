"""The user's own kubeconfig: what merge adds goes with the cluster, and nothing else does."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from podyard.cli.commands import podyard
from podyard.cluster import bringup
from podyard.cluster.errors import ClusterError
from podyard.cluster.plan import Observed
from podyard.cluster.spec import ClusterSpec, Placement
from podyard.cluster.state import StateDirectory
from podyard.cluster.userconfig import forget, merge, merged, without
from tests.unit.cluster.notes import Notes

CONTEXT = "podyard-demo"
WORK = """\
apiVersion: v1
kind: Config
preferences:
  colors: true
clusters:
- name: work
  cluster:
    server: https://work.example
    insecure-skip-tls-verify: true
users:
- name: work
  user:
    auth-provider:
      config:
        expiry: 2026-01-01T00:00:00Z
        cmd-args: config config-helper --format=json --with-many-words --so-that-a-line-would-be-folded
        note: 'grüße'
contexts:
- name: work
  context:
    cluster: work
    user: work
current-context: work
"""


def config(authority: str = "CA", certificate: str = "CERT", name: str = CONTEXT) -> dict[str, Any]:
    """As the host keeps a cluster's kubeconfig."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": "https://x", "certificate-authority-data": authority}}
        ],
        "users": [{"name": name, "user": {"client-certificate-data": certificate, "client-key-data": "KEY"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's kubeconfig, of another cluster; podyard's data are elsewhere."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("PODYARD_NAME", raising=False)
    path = tmp_path / ".kube" / "config"
    path.parent.mkdir()
    path.write_text(WORK, encoding="utf-8")
    return path


@pytest.fixture
def state(home: Path) -> StateDirectory:
    one = StateDirectory("demo")
    one.path.mkdir(parents=True)
    one.kubeconfig.write_text(yaml.safe_dump(config()), encoding="utf-8")
    return one


def read(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)


def contexts(path: Path) -> list[str]:
    return [entry["name"] for entry in read(path)["contexts"]]


def test_merging_keeps_what_is_not_ours_and_replaces_what_is() -> None:
    ours = config()
    theirs = {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {"colors": True},
        "clusters": [{"name": "work", "cluster": {}}, {"name": CONTEXT, "cluster": {"server": "old"}}],
        "users": None,
        "contexts": [{"name": "work", "context": {}}],
        "current-context": "work",
    }
    result = merged(theirs, ours)
    assert [entry["name"] for entry in result["clusters"]] == ["work", CONTEXT]
    assert result["clusters"][1] == ours["clusters"][0]
    assert result["preferences"] == {"colors": True}
    assert result["current-context"] == CONTEXT
    assert merged(result, ours) == result
    assert merged(None, ours)["users"] == ours["users"]


def test_what_goes_in_comes_out_and_all_else_stays_to_the_letter(state: StateDirectory, home: Path) -> None:
    home.chmod(0o640)
    done = merge(state)
    assert (done.path, done.context, done.before) == (home, CONTEXT, "work")
    assert contexts(home) == ["work", CONTEXT]
    assert read(home)["current-context"] == CONTEXT
    (told,) = forget(state)
    assert told == (
        f"{home}: the context {CONTEXT} is taken out; "
        "none is current now, kubectl config use-context chooses one"
    )
    # As text: neither a time nor a long line nor a letter has become another.
    expected = {**yaml.load(WORK, yaml.BaseLoader), "current-context": ""}
    assert read(home) == expected
    assert "format=json --with-many-words --so-that-a-line-would-be-folded\n" in home.read_text()
    assert stat.S_IMODE(home.stat().st_mode) == 0o640
    assert [path.name for path in home.parent.iterdir()] == ["config"]
    assert forget(state) == []


def test_another_context_that_is_current_stays_so(state: StateDirectory, home: Path) -> None:
    merge(state)
    text = home.read_text(encoding="utf-8")
    home.write_text(text.replace(f"current-context: {CONTEXT}", "current-context: work"), encoding="utf-8")
    assert forget(state) == [f"{home}: the context {CONTEXT} is taken out"]
    assert read(home)["current-context"] == "work"
    assert contexts(home) == ["work"]


def test_a_namespace_of_the_users_makes_a_context_no_other() -> None:
    mine = config()
    mine["contexts"][0]["context"]["namespace"] = "test"
    (left,) = without([mine], config())
    assert (left["clusters"], left["users"], left["contexts"], left["current-context"]) == ([], [], [], "")


@pytest.mark.parametrize(
    "theirs",
    [
        config(authority="ANOTHER"),
        {**config(), "clusters": [{"name": CONTEXT, "cluster": {"certificate-authority": "/ca.crt"}}]},
        {**config(), "clusters": [{"name": CONTEXT, "cluster": None}]},
        config(name="podyard-other"),
        {},
        {"clusters": None, "users": [None, "x"], "contexts": "x", "current-context": CONTEXT},
    ],
)
def test_another_clusters_entries_stay_whatever_their_name(theirs: dict[str, Any]) -> None:
    assert without([theirs], config()) == [theirs]
    # Of two with one name nobody can say whose the context is.
    assert without([theirs, config(authority="ANOTHER")], config())[0] == theirs


def test_entries_that_the_user_has_given_another_sense_stay() -> None:
    mine = config(certificate="ANOTHER")
    mine["contexts"][0]["context"]["user"] = "me"
    (left,) = without([mine], config())
    assert left["clusters"] == []
    assert (left["users"], left["contexts"]) == (mine["users"], mine["contexts"])
    assert left["current-context"] == CONTEXT


def test_of_several_files_the_first_is_merged_into_and_all_are_looked_at(
    state: StateDirectory, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    second.write_text(WORK, encoding="utf-8")
    monkeypatch.setenv("KUBECONFIG", f":{first}:{second}:{first}")
    assert merge(state).before == "work"
    assert contexts(first) == [CONTEXT]
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    # kubectl takes the current context from any of them.
    second.write_text(WORK.replace("current-context: work", f"current-context: {CONTEXT}"), encoding="utf-8")
    assert [line.partition(":")[0] for line in forget(state)] == [str(first), str(second)]
    assert (contexts(first), contexts(second)) == ([], ["work"])
    assert (read(first)["current-context"], read(second)["current-context"]) == ("", "")
    assert home.read_text(encoding="utf-8") == WORK


def test_where_it_was_merged_into_is_known_later(
    state: StateDirectory, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "mine.yaml")
    for _ in range(2):
        merge(state)
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.chdir("/")
    assert len(forget(state)) == 1
    assert contexts(tmp_path / "mine.yaml") == []


def test_a_link_stays_one(state: StateDirectory, home: Path) -> None:
    kept = home.rename(home.with_name("kept"))
    home.symlink_to("kept")
    merge(state)
    forget(state)
    assert home.is_symlink()
    assert contexts(kept) == ["work"]


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
def test_what_is_no_kubeconfig_is_left_alone_and_told(
    state: StateDirectory, home: Path, content: bytes
) -> None:
    home.write_bytes(content)
    with pytest.raises(ClusterError) as refused:
        merge(state)
    assert "it was not touched" in refused.value.hint
    (told,) = forget(state)
    assert told.startswith(f"{home} is no ")
    assert home.read_bytes() == content


def test_a_file_that_cannot_be_written_is_told(
    state: StateDirectory, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge(state)
    before = home.read_bytes()

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "replace", refuse)
    assert forget(state) == [f"{home} still has the context {CONTEXT}: Read-only file system"]
    assert home.read_bytes() == before
    assert [path.name for path in home.parent.iterdir()] == ["config"]


def test_the_clusters_own_file_is_no_file_of_the_users(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(state.kubeconfig))
    assert forget(state) == []


class Engine:
    """One that has nothing of the cluster any more."""

    host = "127.0.0.1"

    async def identity(self) -> str:
        return "THIS"

    async def observe(self, _: str) -> Observed:
        return Observed()

    async def remove_container(self, _: str) -> None:
        """Has none."""

    remove_volume = remove_container


def test_down_takes_the_cluster_out_and_says_so(state: StateDirectory, home: Path) -> None:
    merge(state)
    progress = Notes()
    assert asyncio.run(bringup.down(Engine(), "demo", progress))  # type: ignore[arg-type]
    assert [line for line in progress.notes if CONTEXT in line]
    assert contexts(home) == ["work"]
    assert not state.path.exists()


def test_down_of_a_cluster_that_was_not_merged_touches_nothing(state: StateDirectory, home: Path) -> None:
    progress = Notes()
    assert asyncio.run(bringup.down(Engine(), "demo", progress))  # type: ignore[arg-type]
    assert progress.notes == []
    assert home.read_text(encoding="utf-8") == WORK


def test_merge_says_which_context_is_current_now_and_which_was(state: StateDirectory, home: Path) -> None:
    state.save_placement(ClusterSpec("demo"), Placement("172.28.0.0/22", 1500))
    for expected in (
        [
            f"{home}: the context {CONTEXT} is the current one now",
            "before it was work, to which this goes back: kubectl config use-context work",
        ],
        [f"{home}: the context {CONTEXT} is the current one now"],
    ):
        done = CliRunner().invoke(podyard, ["--name", "demo", "kubeconfig", "--merge"])
        assert done.output.splitlines() == expected
