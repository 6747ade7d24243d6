"""The cluster's folder on the host: kept, mended, private; and the user's kubeconfig."""

from __future__ import annotations

import base64
import multiprocessing
import ssl
import tempfile
from pathlib import Path

import pytest
import yaml

from podyard.base import pki
from podyard.base.pki import Identity
from podyard.cluster import bringup
from podyard.cluster.errors import ClusterError
from podyard.cluster.homes import lives_here, require_home
from podyard.cluster.plan import Observed
from podyard.cluster.settings import Settings
from podyard.cluster.spec import ClusterSpec, HostPorts, Placement
from podyard.cluster.state import (
    Busy,
    Home,
    StateDirectory,
    data_directory,
    engine_locks,
    locked,
)
from tests.unit.cluster.notes import Notes

SPEC = ClusterSpec("demo", nodes=1, etcd_members=1)
PLACEMENT = Placement("172.28.0.0/22", 1400, {"demo-apiserver-1": HostPorts(26443, 26444, 26445)})
NOW_S = 1_800_000_000.0
DAY_S = 86400.0


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateDirectory:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return StateDirectory("demo")


def test_a_relative_data_home_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert data_directory() == Path.home() / ".local" / "share" / "podyard"


def test_placement_survives(state: StateDirectory) -> None:
    assert state.placement() is None
    assert state.nodes() is None
    state.save_placement(SPEC, PLACEMENT)
    assert state.placement() == PLACEMENT
    assert state.nodes() == 1


@pytest.mark.parametrize("content", ["", "[]", "subnet: 1", "ports: 5\nsubnet: x\nmtu: 1", "{"])
def test_a_broken_cluster_file_counts_as_none(state: StateDirectory, content: str) -> None:
    state.save_placement(SPEC, PLACEMENT)
    (state.path / "cluster.yaml").write_text(content, encoding="utf-8")
    assert state.placement() is None


@pytest.mark.parametrize(
    "content", ["", "[]", "{", "settings: 5", "settings: {etcd_members: many}", "settings: {unknown: 1}"]
)
def test_what_was_told_and_cannot_be_read_is_an_error_and_no_default(
    state: StateDirectory, content: str
) -> None:
    state.save_placement(SPEC, PLACEMENT)
    file = state.path / "cluster.yaml"
    file.write_text(content, encoding="utf-8")
    for read in (state.settings, state.settings_told, lambda: state.save_nodes(2)):
        with pytest.raises(ClusterError, match=r"cluster\.yaml cannot be read") as refused:
            read()
        assert "remove that file" in refused.value.hint
    # Nothing was written back.
    assert file.read_text(encoding="utf-8") == content
    assert state.engine() is None


def test_where_nothing_was_told_there_are_defaults(state: StateDirectory) -> None:
    assert (state.settings(), state.settings_told()) == (Settings(), None)
    state.save_placement(SPEC, PLACEMENT)
    file = state.path / "cluster.yaml"
    file.write_text("name: demo\nnodes: 1\n", encoding="utf-8")
    assert (state.settings(), state.settings_told()) == (Settings(), None)


class Engine:
    """One of several engines, which has nothing."""

    host = "127.0.0.1"

    def __init__(self, identity: str) -> None:
        self._identity = identity

    async def identity(self) -> str:
        return self._identity

    async def observe(self, _: str) -> Observed:
        return Observed()

    async def remove_container(self, name: str) -> None:
        """Has none."""

    remove_volume = remove_container


async def test_the_state_of_a_cluster_on_another_engine_is_left_alone(state: StateDirectory) -> None:
    here, elsewhere = Engine("HERE"), Engine("ELSEWHERE")
    state.save_placement(SPEC, PLACEMENT, Home("ELSEWHERE", "build.example"))
    state.save_nodes(3)
    before = {path: path.read_bytes() for path in state.path.rglob("*") if path.is_file()}
    request = bringup.UpRequest(SPEC)
    for act in (
        lambda: bringup.down(here, "demo", Notes()),  # type: ignore[arg-type]
        lambda: bringup.up(here, request, Notes()),  # type: ignore[arg-type]
        lambda: bringup.add_node(here, "demo", Notes()),  # type: ignore[arg-type]
    ):
        with pytest.raises(
            ClusterError, match=r"another engine .*ELSEWHERE.*build\.example.*HERE"
        ) as refused:
            await act()
        for words in ("DOCKER_HOST", str(state.path), "`engine`"):
            assert words in refused.value.hint
    assert {path: path.read_bytes() for path in state.path.rglob("*") if path.is_file()} == before
    assert not await lives_here(here, state)  # type: ignore[arg-type]
    assert await lives_here(elsewhere, state)  # type: ignore[arg-type]
    assert await bringup.down(elsewhere, "demo", Notes())  # type: ignore[arg-type]
    assert not state.path.exists()


async def test_a_state_that_names_no_engine_is_taken_as_it_is(state: StateDirectory) -> None:
    state.save_placement(SPEC, PLACEMENT)
    engine = Engine("HERE")
    assert await lives_here(engine, state)  # type: ignore[arg-type]
    assert await require_home(engine, state) == Home("HERE", "127.0.0.1")  # type: ignore[arg-type]
    assert await bringup.down(engine, "demo", Notes())  # type: ignore[arg-type]


def test_material_is_kept_and_private(state: StateDirectory) -> None:
    first = state.material(SPEC, PLACEMENT, now_s=NOW_S)
    assert state.material(SPEC, PLACEMENT, now_s=NOW_S) == first
    assert state.path.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o077 for path in state.path.rglob("*")} == {0}


def test_broken_missing_and_old_certificates_are_made_anew_and_no_others(state: StateDirectory) -> None:
    first = state.material(SPEC, PLACEMENT, now_s=NOW_S)
    (state.path / "pki/demo-worker-1/kubelet-client.crt").write_bytes(b"torn")
    (state.path / "pki/demo-etcd-1/peer.key").unlink()
    second = state.material(SPEC, PLACEMENT, now_s=NOW_S)
    changed = {name for name, pair in second.pairs.items() if pair != first.pairs[name]}
    assert changed == {"demo-worker-1/kubelet-client", "demo-etcd-1/peer"}
    assert second.authorities == first.authorities
    late_s = NOW_S + (pki.IDENTITY_VALID_DAYS - pki.RENEWAL_DAYS + 1) * DAY_S
    third = state.material(SPEC, PLACEMENT, now_s=late_s)
    assert not set(third.pairs.values()) & set(second.pairs.values())
    assert third.service_account == first.service_account


def test_a_certificate_for_other_names_does_not_serve() -> None:
    authority = pki.new_authority("ca", now_s=NOW_S)
    identity = Identity("someone", ("group",), ("name", "localhost"), ("127.0.0.1",))
    pair = pki.issue(authority, identity, now_s=NOW_S)
    assert pki.serves(pair, authority, identity, now_s=NOW_S)
    for other in (
        Identity("someone", ("other",), ("name", "localhost"), ("127.0.0.1",)),
        Identity("someone", ("group",), ("name",), ("127.0.0.1",)),
        Identity("else", ("group",), ("name", "localhost"), ("127.0.0.1",)),
    ):
        assert not pki.serves(pair, authority, other, now_s=NOW_S)
    assert not pki.serves(pair, pki.new_authority("ca", now_s=NOW_S), identity, now_s=NOW_S)


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> ssl.SSLObject:
    """A TLS handshake in memory; answers the server's side."""
    pipes = [ssl.MemoryBIO() for _ in range(4)]
    server_side = server.wrap_bio(pipes[0], pipes[1], server_side=True)
    client_side = client.wrap_bio(pipes[2], pipes[3], server_hostname=name)
    for _ in range(10):
        done = 0
        for side, sent, received in ((client_side, pipes[3], pipes[0]), (server_side, pipes[1], pipes[2])):
            try:
                side.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                pass
            received.write(sent.read())
        if done == 2:
            return server_side
    raise AssertionError("the handshake does not end")


def test_the_certificates_work_for_mutual_tls(tmp_path: Path) -> None:
    authority = pki.new_authority("kubernetes", now_s=pki_now_s())
    server = pki.issue(
        authority, Identity("kube-apiserver", dns_names=("api",), client=False), now_s=pki_now_s()
    )
    admin = pki.issue(authority, Identity("kubernetes-admin", ("system:masters",)), now_s=pki_now_s())
    (tmp_path / "ca").write_bytes(authority.certificate)
    for name, pair in (("server", server), ("admin", admin)):
        (tmp_path / f"{name}.crt").write_bytes(pair.certificate)
        (tmp_path / f"{name}.key").write_bytes(pair.key)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "ca"))
    serving.verify_mode = ssl.CERT_REQUIRED
    serving.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    asking = ssl.create_default_context(cafile=str(tmp_path / "ca"))
    asking.verify_flags |= ssl.VERIFY_X509_STRICT
    asking.load_cert_chain(tmp_path / "admin.crt", tmp_path / "admin.key")
    peer = _handshake(serving, asking, "api").getpeercert()
    assert peer is not None
    assert peer["subject"] == (
        (("organizationName", "system:masters"),),
        (("commonName", "kubernetes-admin"),),
    )
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(serving, asking, "other")


def pki_now_s() -> float:
    from podyard.base import clock

    return clock.real_now_s()


def test_kubeconfig_has_everything_inside(state: StateDirectory) -> None:
    material = state.material(SPEC, PLACEMENT, now_s=NOW_S)
    state.write_kubeconfig(SPEC, PLACEMENT, material)
    config = yaml.safe_load(state.kubeconfig.read_text(encoding="utf-8"))
    assert config["current-context"] == "podyard-demo"
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:26443"
    user = config["users"][0]["user"]
    assert base64.b64decode(user["client-certificate-data"]) == material.pairs["admin"].certificate


def _hold(name: str, held: object, release: object) -> None:
    with StateDirectory(name).locked():
        held.set()  # type: ignore[attr-defined]
        release.wait(10)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_two_commands_do_not_change_one_cluster_at_once(state: StateDirectory) -> None:
    context = multiprocessing.get_context("fork")
    held, release = context.Event(), context.Event()
    other = context.Process(target=_hold, args=("demo", held, release))
    other.start()
    assert held.wait(10)
    with pytest.raises(ClusterError, match="another podyard command"), state.locked():
        pass
    release.set()
    other.join(10)
    with state.locked():
        pass


def test_what_an_engine_has_once_is_locked_wherever_states_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "one"))
    with locked("it", folder=engine_locks()):
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
        with pytest.raises(Busy), locked("it", folder=engine_locks()):
            pass
    with locked("it", folder=engine_locks()):
        pass
    assert engine_locks().stat().st_mode & 0o777 == 0o700
