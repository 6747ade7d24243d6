"""Nothing takes for granted where the engine is, what machine it has, or that containers can be reached."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import docker
import pytest
import yaml

from podyard.base import pki
from podyard.cluster import bringup, engine, ports
from podyard.cluster.compose import placement_of, render
from podyard.cluster.engine import EngineError
from podyard.cluster.enginehost import debian_architecture, host_of, publish_address
from podyard.cluster.errors import PreflightError
from podyard.cluster.identities import Authority, entries
from podyard.cluster.image import bootstrap_command, image_files
from podyard.cluster.plan import Observed
from podyard.cluster.roles import Container, containers, registry
from podyard.cluster.settings import Settings
from podyard.cluster.spec import ClusterSpec, HostPorts, NodeOptions, Placement, Port, Publication
from podyard.cluster.state import StateDirectory, kubeconfig
from tests.unit.cluster.notes import Notes

NOW_S = 1_800_000_000.0
SPEC = ClusterSpec(
    "demo",
    nodes=2,
    node_options=(NodeOptions((("zone", "a"),)),),
    publish=(Publication(2, Port(30080, 8080)), Publication(2, Port(30080, 8080, "udp", "0.0.0.0"))),
    extra_cas=("PEM",),
)
ARCHITECTURES = re.compile(r"amd64|x86.64|arm64|aarch64|i[36]86", re.IGNORECASE)


def placement(host: str = "127.0.0.1") -> Placement:
    return Placement("172.28.0.0/22", 1400, {"demo-apiserver-1": HostPorts(26443, 26444, 26445, host)})


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateDirectory:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return StateDirectory("demo")


def made(state: StateDirectory, host: str = "127.0.0.1") -> list[Container]:
    material = state.material(SPEC, placement(host), now_s=NOW_S)
    return [*containers(SPEC, placement(host), material), registry(host_port=26446)]


@pytest.mark.parametrize(
    ("endpoint", "host"),
    [
        ("", "127.0.0.1"),
        ("unix:///var/run/docker.sock", "127.0.0.1"),
        ("npipe:////./pipe/docker_engine", "127.0.0.1"),
        ("http+unix:///var/run/docker.sock", "127.0.0.1"),
        ("tcp://localhost:2375", "127.0.0.1"),
        ("tcp://127.0.0.1:2375", "127.0.0.1"),
        ("tcp://[::1]:2375", "127.0.0.1"),
        ("tcp://0.0.0.0:2375", "127.0.0.1"),
        ("tcp://10.0.0.5:2376", "10.0.0.5"),
        ("tcp://[fd00::5]:2376", "fd00::5"),
        ("tcp://docker:2376", "docker"),
        ("https://build.example:2376", "build.example"),
        ("ssh://me@build.example", "build.example"),
        ("ssh://build.example:2222", "build.example"),
        ("10.0.0.5:2375", "10.0.0.5"),
        ("build.example:2375", "build.example"),
        ("127.0.0.1:2375", "127.0.0.1"),
        ("[fd00::5]:2375", "fd00::5"),
        (" tcp://10.0.0.5:2376 ", "10.0.0.5"),
    ],
)
def test_an_engines_ports_are_where_its_address_says(endpoint: str, host: str) -> None:
    assert host_of(endpoint) == host


@pytest.mark.parametrize("endpoint", ["10.0.0.5:2375", "build.example:2375", "[fd00::5]:2375", "h-1:2375"])
def test_an_address_without_a_scheme_is_read_as_the_engines_library_reads_it(endpoint: str) -> None:
    assert host_of(endpoint) == host_of(docker.utils.parse_host(endpoint)) != "127.0.0.1"


def test_only_the_api_server_is_published_beyond_a_loopback(state: StateDirectory) -> None:
    assert (publish_address("127.0.0.1"), publish_address("build.example")) == ("127.0.0.1", "0.0.0.0")
    assert publish_address("fd00::5") == "::"
    for host, address in (("127.0.0.1", "127.0.0.1"), ("build.example", "0.0.0.0")):
        published = {c.name: {port.address for port in c.ports} for c in made(state, host) if c.ports}
        assert published["demo-apiserver-1"] == {address}
        assert published["podyard-registry"] == {"127.0.0.1"}
        # As the user said, wherever the engine is.
        assert published["demo-worker-2"] == {"127.0.0.1", "0.0.0.0"}


@pytest.mark.parametrize(
    ("host", "where"),
    [("10.0.0.5", "10.0.0.5"), ("build.example", "build.example"), ("fd00::5", "[fd00::5]")],
)
def test_what_the_host_keeps_leads_to_the_engines_host(state: StateDirectory, host: str, where: str) -> None:
    there = placement(host)
    material = state.material(SPEC, there, now_s=NOW_S)
    config = kubeconfig(SPEC, there, material)
    assert config["clusters"][0]["cluster"]["server"] == f"https://{where}:26443"
    assert there.ports["demo-apiserver-1"].grpc_target == f"{where}:26444"
    state.save_placement(SPEC, there)
    assert state.placement() == there
    # The server's certificate is good for that host, and for the loopback as ever.
    identity = entries(SPEC, there)["demo-apiserver-1/serving"].identity
    assert host in (*identity.addresses, *identity.dns_names)
    assert "127.0.0.1" in identity.addresses
    local = entries(SPEC, placement())["demo-apiserver-1/serving"].identity
    assert pki.serves(
        material.pairs["demo-apiserver-1/serving"],
        material.authorities[Authority.CLUSTER],
        identity,
        now_s=NOW_S,
    )
    assert set(identity.addresses + identity.dns_names) - set(local.addresses + local.dns_names) == {host}


def test_no_address_of_a_container_is_among_what_the_host_goes_by(state: StateDirectory) -> None:
    there = placement()
    material = state.material(SPEC, there, now_s=NOW_S)
    state.save_placement(SPEC, there)
    state.write_kubeconfig(SPEC, there, material)
    kept = [path for path in state.path.rglob("*") if path.is_file() and path.suffix not in {".crt", ".key"}]
    assert {path.name for path in kept} >= {"kubeconfig", "cluster.yaml"}
    for path in kept:
        text = path.read_text(encoding="utf-8").replace(there.subnet, "")
        assert not re.search(r"172\.(28|29|30|31)\.", text), path


def test_no_definition_names_an_architecture_or_a_folder_of_the_host(state: StateDirectory) -> None:
    api = docker.APIClient(base_url="tcp://127.0.0.1:1", version="1.41")
    for container in made(state):
        said = [
            repr(container),
            *(file.content.decode() for file in container.files if b"-----BEGIN" not in file.content),
        ]
        assert not ARCHITECTURES.search("\n".join(said)), container.name
        asked = engine._creation(api, container, "podyard:1")
        assert "platform" not in asked
        host = asked["host_config"]
        assert not host.get("Binds")
        for mount in host.get("Mounts") or ():
            # A remote engine has none of this machine's files.
            assert mount["Type"] == "volume"
            assert "/" not in mount["Source"]
    api.close()


def test_no_service_of_compose_names_an_architecture_or_a_folder_of_the_host() -> None:
    text = render(SPEC, placement_of(SPEC))
    assert not ARCHITECTURES.search(text)
    document = yaml.safe_load(text)
    for service in document["services"].values():
        # Named volumes, each of them the cluster's own.
        assert {volume.partition(":")[0] for volume in service["volumes"]} <= set(document["volumes"])
    assert "- 127.0.0.1:8080:30080\n" in text
    assert "- 0.0.0.0:8080:30080/udp\n" in text


def test_where_the_image_is_made_every_architecture_stands_beside_another() -> None:
    for path in image_files().rglob("*"):
        if path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                found = {word.lower() for word in ARCHITECTURES.findall(line)}
                assert len(found) != 1, f"{path}: {line}"


@pytest.mark.parametrize(
    ("machine", "debian"), [("x86_64", "amd64"), ("aarch64", "arm64"), ("armv7l", "armhf"), ("new", "new")]
)
def test_a_base_is_made_for_the_engines_machine(machine: str, debian: str) -> None:
    assert debian_architecture(machine) == debian
    assert f"--architectures={debian}" in bootstrap_command(machine, Path("base.tar"))


def test_of_another_host_only_its_engine_knows_which_ports_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "port_is_free", lambda _: pytest.fail("asked of this machine"))
    spec = ClusterSpec("demo")
    first = ports.choose_ports(spec, {}, (), host="build.example")
    assert first["demo-apiserver-1"].host == "build.example"
    assert ports.choose_ports(spec, first, (), host="build.example") == first
    taken = first["demo-apiserver-1"].rest
    second = ports.choose_ports(spec, first, (), host="build.example", lost={taken})
    assert taken not in {port for _, port in second["demo-apiserver-1"].pairs()}
    # The same cluster by another way to its engine: other host, same ports.
    assert ports.choose_ports(spec, first, {"demo-apiserver-1"})["demo-apiserver-1"] == HostPorts(
        *[port for _, port in first["demo-apiserver-1"].pairs()]
    )


def test_the_registrys_port_stays_until_the_engine_does_not_give_it(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = ports.registry_port(0, taken=set())
    assert ports.registry_port(chosen, taken={chosen}) == chosen
    assert ports.registry_port(0, taken={chosen}) != chosen
    again = ports.registry_port(chosen, taken=set(), lost={chosen})
    assert again != chosen
    assert ports.registry_port(0, taken=set(), lost={chosen}) == again
    monkeypatch.setattr(ports, "port_is_free", lambda _: pytest.fail("asked of this machine"))
    there = ports.registry_port(0, taken=set(), host="build.example")
    assert ports.registry_port(there, taken=set(), host="build.example", lost={there}) != there


def test_the_ports_of_the_api_server_keep_away_from_those_to_be_published() -> None:
    spec = ClusterSpec("demo", nodes=1)
    first = ports.choose_ports(spec, {}, ())
    wanted = first["demo-apiserver-1"].grpc
    clashing = ClusterSpec("demo", nodes=1, publish=(Publication(1, Port(30080, wanted)),))
    for kept in ({}, first):
        chosen = ports.choose_ports(clashing, kept, ())["demo-apiserver-1"]
        assert wanted not in {port for _, port in chosen.pairs()}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("driver failed programming: Bind for 127.0.0.1:26443 failed: port is already allocated", {26443}),
        ("listen tcp4 0.0.0.0:8080: bind: address already in use", {8080}),
        (
            "failed to bind port for [::]:8080:172.28.1.1:30080/tcp: address already in use",
            {8080},
        ),
        ("failed to bind host port for 10.0.0.5:8080:172.17.0.2:80/tcp: address already in use", {8080}),
        ("failed to bind host port 0.0.0.0:8080/tcp: address already in use", {8080}),
        ("driver failed: Bind for :::8080 failed: port is already allocated", {8080}),
        ("Bind for fd00::5:8080 failed: port is already allocated", {8080}),
        ("Bind for [::1]:8080 failed: port is already allocated", {8080}),
        ("exposing port TCP 0.0.0.0:80 -> 127.0.0.1:0: listen tcp 0.0.0.0:80: bind: in use", {80}),
        ("Pool overlaps with other one on this address space", set()),
    ],
)
def test_the_ports_that_an_engine_complains_about(words: str, expected: set[int]) -> None:
    assert ports.named_in(words) == expected


async def test_a_port_that_the_user_named_is_not_exchanged_for_another(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> Placement:
        raise EngineError("Bind for 127.0.0.1:8080 failed: port is already allocated", status=500)

    monkeypatch.setattr(bringup, "_place", refuse)
    monkeypatch.setattr(bringup, "_registry_turn", lambda _: nullcontext())

    class Engine:
        async def observe(self, _: str) -> Observed:
            return Observed()

    with pytest.raises(PreflightError, match="8080/tcp cannot be published") as refused:
        await bringup._reach(Engine(), SPEC, "", state, Notes(), replace_living=True)  # type: ignore[arg-type]
    assert "choose another port" in refused.value.hint
    assert Settings.of(SPEC).publish == SPEC.publish
