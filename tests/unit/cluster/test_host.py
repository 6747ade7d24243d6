"""Preflight's judgement, the build context, ports, and the small parsers of the command line."""

from __future__ import annotations

import dataclasses
import io
import socket
import tarfile

import pytest

from podyard.cli.cluster import resolve_component, uptime
from podyard.cluster import image
from podyard.cluster.engine import EngineError, EngineInfo
from podyard.cluster.errors import ClusterError, NotFoundError, PreflightError
from podyard.cluster.plan import Observed, ObservedContainer
from podyard.cluster.ports import candidate_subnets, choose_ports, free_port, port_is_free
from podyard.cluster.preflight import HostFacts, explain_start_failure, judge, require
from podyard.cluster.pushing import registry_path
from podyard.cluster.spec import ClusterSpec
from tests.unit.cluster.notes import Notes

GIB = 1024**3
ENGINE = EngineInfo("28.0.0", "1.48", "linux", "6.1", "/var/lib/docker", 8 * GIB, 4)
GOOD = HostFacts(ENGINE, inotify_instances=128, free_disk_bytes=20 * GIB)


def test_a_good_host_has_no_problem_and_neither_has_one_that_cannot_be_seen() -> None:
    assert judge(GOOD, nodes=2, image_present=False) == []
    assert judge(HostFacts(ENGINE, None, None), nodes=2, image_present=False) == []


@pytest.mark.parametrize("kind", ["rootless", "podman"])
def test_engines_that_cannot_carry_nodes_are_refused_by_name(kind: str) -> None:
    facts = dataclasses.replace(GOOD, engine=dataclasses.replace(ENGINE, **{kind: True}))
    [problem] = judge(facts, nodes=2, image_present=True)
    assert kind in problem.text.lower()
    assert problem.fatal
    assert "DOCKER_HOST" in problem.remedy


def test_each_problem_comes_with_what_to_do() -> None:
    bad = HostFacts(
        dataclasses.replace(ENGINE, os_type="windows", api_version="1.40", memory_bytes=GIB),
        inotify_instances=20,
        free_disk_bytes=GIB // 2,
    )
    problems = judge(bad, nodes=2, image_present=True)
    assert len(problems) == 5
    assert all(problem.remedy for problem in problems)
    assert [problem.text for problem in problems if not problem.fatal] == [
        "the engine has 1.0 GiB of memory; a cluster wants 2 GiB"
    ]
    with pytest.raises(
        PreflightError, match="max_user_instances is 20; about 32 are needed for 2 nodes"
    ) as caught:
        require(problems)
    assert "sudo sysctl fs.inotify.max_user_instances=512" in caught.value.hint
    assert caught.value.exit_code == 3


def test_an_image_to_build_needs_more_disk() -> None:
    tight = dataclasses.replace(GOOD, free_disk_bytes=2 * GIB)
    assert judge(tight, nodes=2, image_present=True) == []
    assert len(judge(tight, nodes=2, image_present=False)) == 1


def test_a_refused_capability_is_a_problem_of_the_host() -> None:
    refused = EngineError(
        "OCI runtime create failed: unable to apply caps: operation not permitted", status=500
    )
    assert isinstance(explain_start_failure(refused, "demo-worker-1"), PreflightError)
    assert isinstance(explain_start_failure(EngineError("no space left"), "demo-worker-1"), EngineError)


def test_the_context_has_what_the_dockerfile_copies() -> None:
    files = image.context_files()
    paths = {file.path: file for file in files}
    assert {"Dockerfile", "build/requirements.lock", "build/bake-images"} <= set(paths)
    assert paths["build/install-packages"].executable
    assert paths["root/opt/podyard/bin/entrypoint"].executable
    assert not paths["root/etc/containerd/config.toml"].executable
    for package in image.PACKAGES:
        assert f"root/opt/podyard/code/{package}/__init__.py" in paths
    assert not [path for path in paths if "__pycache__" in path or path.endswith(".pyc")]
    buffer = io.BytesIO()
    image.write_context(files, buffer)
    buffer.seek(0)
    with tarfile.open(fileobj=buffer) as tar:
        names = tar.getnames()
    assert "certs" in names
    assert len(names) == len(set(names))
    assert all(
        not name or name.rpartition("/")[0] in {*names[:index], ""} for index, name in enumerate(names)
    )


def test_the_digest_follows_content_path_and_mode() -> None:
    one = image.ContextFile("a", b"x")
    digests = {
        image.context_digest(files)
        for files in ([one], [image.ContextFile("a", b"y")], [image.ContextFile("b", b"x")], [one, one])
    }
    assert len(digests) == 4
    assert image.context_digest([image.ContextFile("a", b"x", executable=True)]) not in digests


@pytest.mark.parametrize(
    ("label", "noted"),
    [
        ({}, 0),
        ({image.LABEL_CONTEXT: "other"}, 1),
        ({image.LABEL_CONTEXT: image.context_digest([image.ContextFile("a", b"x")])}, 0),
    ],
)
async def test_an_image_of_other_code_is_taken_and_said(label, noted, monkeypatch) -> None:
    class FakeEngine:
        async def image_id(self, _: str) -> str:
            return "sha256:present"

        async def image_labels(self, _: str) -> dict[str, str]:
            return label

    monkeypatch.setattr(image, "context_files", lambda: [image.ContextFile("a", b"x")])
    progress = Notes()
    assert await image.ensure_image(FakeEngine(), "podyard:1", progress, rebuild=False) == "sha256:present"
    assert len(progress.notes) == noted


def test_ports_stay_unless_something_else_took_them() -> None:
    spec = ClusterSpec("demo")
    first = choose_ports(spec, {}, ())
    numbers = [port for _, port in first["demo-apiserver-1"].pairs()]
    assert len(set(numbers)) == 3
    assert choose_ports(spec, first, ()) == first
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", numbers[1]))
        taken.listen()
        assert not port_is_free(numbers[1])
        # The running API server itself is who listens there.
        assert choose_ports(spec, first, {"demo-apiserver-1"}) == first
        assert choose_ports(spec, first, ()) != first
        assert free_port((), beginning="demo-apiserver-1") != numbers[1]


def test_clusters_look_for_ports_in_different_places() -> None:
    one = choose_ports(ClusterSpec("one"), {}, ())["one-apiserver-1"]
    two = choose_ports(ClusterSpec("two"), {}, ())["two-apiserver-1"]
    assert not {port for _, port in one.pairs()} & {port for _, port in two.pairs()}


def test_subnets_avoid_the_engines_networks() -> None:
    taken = candidate_subnets([])[0]
    assert taken not in candidate_subnets([taken])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nginx", ("library/nginx", "latest")),
        ("myapp:1", ("library/myapp", "1")),
        ("docker.io/library/nginx:1.26", ("library/nginx", "1.26")),
        ("docker.io/nginx", ("library/nginx", "latest")),
        ("me/app:2", ("me/app", "2")),
        ("ghcr.io/me/app", ("me/app", "latest")),
        ("localhost:5000/app:3", ("app", "3")),
        ("registry.example/app", ("app", "latest")),
    ],
)
def test_where_nodes_look_for_an_image(name: str, expected: tuple[str, str]) -> None:
    assert registry_path(name) == expected


def test_a_digest_cannot_be_pushed() -> None:
    with pytest.raises(ClusterError, match="digest"):
        registry_path("nginx@sha256:abc")


def row(name: str, role: str) -> ObservedContainer:
    return ObservedContainer(name, role, "running", "", "")


def test_components_by_full_name_short_name_or_lone_role() -> None:
    rows = [
        row("demo-apiserver-1", "apiserver"),
        row("demo-worker-1", "worker"),
        row("demo-worker-2", "worker"),
    ]
    observed = Observed(
        containers={one.name: one for one in rows}, registry=row("podyard-registry", "registry")
    )
    assert resolve_component("demo", "worker-2", observed) == "demo-worker-2"
    assert resolve_component("demo", "demo-worker-2", observed) == "demo-worker-2"
    assert resolve_component("demo", "apiserver", observed) == "demo-apiserver-1"
    assert resolve_component("demo", "podyard-registry", observed) == "podyard-registry"
    for word in ("worker", "worker-3"):
        with pytest.raises(NotFoundError) as caught:
            resolve_component("demo", word, observed)
        # A newcomer who asks for a pod's logs is told how to get them.
        assert caught.value.hint.splitlines() == [
            "one of: demo-worker-1 demo-worker-2"
            if word == "worker"
            else "one of: " + " ".join(observed.containers),
            f"of a pod: podyard --name demo kubectl logs {word}",
        ]
    with pytest.raises(NotFoundError, match="no cluster 'demo'"):
        resolve_component("demo", "worker-1", Observed())


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (172800, "2d")]
)
def test_uptime(seconds: int, text: str) -> None:
    started = ObservedContainer("a", "etcd", "running", "", "", {}, "2026-01-01T00:00:00.123456789Z")
    begun_s = 1767225600
    assert uptime(started, begun_s + seconds) == text
    assert uptime(dataclasses.replace(started, state="exited"), begun_s) == "-"
