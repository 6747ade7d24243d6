"""What every runtime must do, run against the hollow one and against containerd in a node container."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from kubelet.runtime.base import (
    CREATED,
    EXITED,
    RUNNING,
    ContainerSpec,
    ObservedPod,
    Runtime,
    RuntimeContainer,
    RuntimeFailure,
    SandboxSpec,
)
from kubelet.runtime.cni import network_config
from kubelet.runtime.cri import CriRuntime
from kubelet.runtime.hollow import HollowRuntime, Stage
from podyard.base import clock
from tests.component.kubelet.relay import relay
from tests.component.node_container import node_container

CIDR = "10.244.9.0/24"
IMAGE = "docker.io/library/busybox:latest"
STUBBORN = ("sh", "-c", "trap '' TERM; while :; do sleep 0.1; done")
OBEDIENT = ("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done")
# What the commands of the real containers do, by name, for the hollow ones.
COMMANDS = {
    "obedient": OBEDIENT,
    "stubborn": STUBBORN,
    "succeeds": ("sh", "-c", "exit 0"),
    "fails": ("sh", "-c", "exit 3"),
}
STAGES = {
    "obedient": Stage(stop_s=0.0),
    "stubborn": Stage(stop_s=3600.0),
    "succeeds": Stage(runs_s=0.01),
    "fails": Stage(runs_s=0.01, exit_code=3),
    "docker.io/library/none:latest": Stage(pull_error="docker.io/library/none:latest: not found"),
}
_numbers = itertools.count()


class Subject:
    """A runtime, and how its containers are told what to do."""

    def __init__(self, runtime: Runtime, *, hollow: bool) -> None:
        self.runtime = runtime
        self.hollow = hollow

    def container(self, does: str, attempt: int = 0) -> ContainerSpec:
        spec = ContainerSpec("main", attempt, IMAGE, log_path=f"main/{attempt}.log", hash="h1")
        return replace(spec, image=does) if self.hollow else replace(spec, command=COMMANDS[does])

    async def sandbox(self, attempt: int = 0, uid: str = "") -> tuple[SandboxSpec, str]:
        spec = sandbox_spec(uid or f"{os.getpid()}-{next(_numbers)}", attempt)
        return spec, await self.runtime.run_sandbox(spec)

    async def running(self, does: str) -> tuple[SandboxSpec, str, str]:
        """A sandbox with one running container: (spec, sandbox id, container id)."""
        spec, sandbox_id = await self.sandbox()
        container_id = await self.runtime.create_container(sandbox_id, self.container(does), spec)
        await self.runtime.start_container(container_id)
        return spec, sandbox_id, container_id

    async def until(self, uid: str, container_id: str, state: str) -> RuntimeContainer:
        async with clock.real_timeout(30):
            while True:
                pod = await self.runtime.pod(uid)
                (found,) = [one for one in pod.containers if one.id == container_id]
                if found.state == state:
                    return found
                await clock.real_sleep(0.05)

    async def clear(self, uid: str) -> None:
        for sandbox in (await self.runtime.pod(uid)).sandboxes:
            await self.runtime.stop_sandbox(sandbox.id)
            await self.runtime.remove_sandbox(sandbox.id)
        assert await self.runtime.pod(uid) == ObservedPod(uid)


def sandbox_spec(uid: str, attempt: int) -> SandboxSpec:
    return SandboxSpec(
        pod_uid=uid,
        pod_name="web",
        pod_namespace="default",
        attempt=attempt,
        hostname="web",
        log_directory=f"/var/log/pods/default_web_{uid}",
        cgroup_parent=f"/kubepods/besteffort/pod{uid}",
    )


@pytest.fixture(scope="module", params=["hollow", pytest.param("cri", marks=pytest.mark.slow)])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str | None]:
    """The name of the node's container; None for the hollow runtime."""
    if request.param == "hollow":
        yield None
        return
    with node_container(f"podyard-cri-{os.getpid()}", tmp_path_factory.mktemp("state")) as name:
        yield name


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def subject(node: str | None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Subject]:
    if node is None:
        yield Subject(HollowRuntime(STAGES, cidr=CIDR), hollow=True)
        return
    directory = tmp_path_factory.mktemp("cri")
    socket = directory / "containerd.sock"
    async with relay(node, "/run/containerd/containerd.sock", socket):
        runtime = CriRuntime(str(socket), network_directory=directory, mtu=1400)
        await runtime.set_pod_cidr(CIDR)
        give_network(node, directory)
        async with clock.real_timeout(60):
            while True:
                try:
                    if (await runtime.status()).network_ready:
                        break
                except RuntimeFailure:
                    pass
                await clock.real_sleep(0.2)
            await runtime.pull(IMAGE)
        yield Subject(runtime, hollow=False)
        await runtime.close()


def give_network(container: str, directory: Path) -> None:
    """Puts what the runtime wrote into the node."""
    (config,) = directory.glob("*.conflist")
    assert config.read_text()
    assert network_config(CIDR, 1400)["name"] in config.read_text()
    subprocess.run(
        [
            "docker",
            "exec",
            "-i",
            container,
            "sh",
            "-c",
            f"mkdir -p /etc/cni/net.d && cat > /etc/cni/net.d/{config.name}",
        ],
        input=config.read_bytes(),
        check=True,
        timeout=30,
    )


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_it_is_ready(subject):
    status = await subject.runtime.status()
    assert (status.ready, status.network_ready) == (True, True)
    assert status.name
    assert status.version


async def test_a_sandbox_has_an_address_and_its_pods_names(subject):
    spec, sandbox_id = await subject.sandbox()
    pod = await subject.runtime.pod(spec.pod_uid)
    assert (pod.uid, pod.name, pod.namespace) == (spec.pod_uid, "web", "default")
    (sandbox,) = pod.sandboxes
    assert (sandbox.id, sandbox.ready, sandbox.attempt) == (sandbox_id, True, 0)
    assert sandbox.ips[0].startswith("10.244.9.")
    assert pod in await subject.runtime.pods() or subject.hollow is False
    await subject.runtime.stop_sandbox(sandbox_id)
    stopped = await subject.runtime.pod(spec.pod_uid)
    assert (stopped.sandboxes[0].ready, stopped.sandboxes[0].ips) == (False, ())
    await subject.clear(spec.pod_uid)


async def test_a_container_is_created_starts_and_keeps_its_facts(subject):
    spec, sandbox_id = await subject.sandbox()
    wanted = subject.container("obedient", attempt=4)
    container_id = await subject.runtime.create_container(sandbox_id, wanted, spec)
    (made,) = (await subject.runtime.pod(spec.pod_uid)).containers
    assert (made.id, made.state, made.name, made.attempt, made.hash) == (
        container_id,
        CREATED,
        "main",
        4,
        "h1",
    )
    assert made.sandbox_id == sandbox_id
    await subject.runtime.start_container(container_id)
    running = await subject.until(spec.pod_uid, container_id, RUNNING)
    assert running.started_at_s >= running.created_at_s > 0
    assert running.image_id
    listed = {pod.uid: pod for pod in await subject.runtime.pods()}[spec.pod_uid]
    (shown,) = listed.containers
    assert (shown.id, shown.state, shown.attempt) == (container_id, RUNNING, 4)
    await subject.clear(spec.pod_uid)


@pytest.mark.parametrize(("does", "code", "reason"), [("succeeds", 0, "Completed"), ("fails", 3, "Error")])
async def test_a_container_ends_and_says_how(subject, does, code, reason):
    spec, _, container_id = await subject.running(does)
    ended = await subject.until(spec.pod_uid, container_id, EXITED)
    assert (ended.exit_code, ended.reason) == (code, reason)
    assert ended.finished_at_s >= ended.started_at_s
    await subject.clear(spec.pod_uid)


@pytest.mark.parametrize(("does", "grace_s", "code"), [("obedient", 20.0, 0), ("stubborn", 1.0, 137)])
async def test_a_stop_is_asked_for_and_then_forced(subject, does, grace_s, code):
    spec, _, container_id = await subject.running(does)
    began_s = clock.real_monotonic_s()
    await subject.runtime.stop_container(container_id, grace_s)
    took_s = clock.real_monotonic_s() - began_s
    ended = await subject.until(spec.pod_uid, container_id, EXITED)
    assert ended.exit_code == code
    assert took_s >= 1.0 if code else took_s < grace_s
    await subject.clear(spec.pod_uid)


async def test_a_second_stop_with_less_grace_shortens_the_first(subject):
    spec, _, container_id = await subject.running("stubborn")
    began_s = clock.real_monotonic_s()
    async with asyncio.TaskGroup() as group:
        group.create_task(subject.runtime.stop_container(container_id, 60.0))
        await clock.real_sleep(0.2)
        group.create_task(subject.runtime.stop_container(container_id, 1.0))
    assert clock.real_monotonic_s() - began_s < 30
    assert (await subject.until(spec.pod_uid, container_id, EXITED)).exit_code == 137
    await subject.clear(spec.pod_uid)


async def test_what_has_stopped_or_is_gone_may_be_stopped_and_removed_again(subject):
    spec, sandbox_id, container_id = await subject.running("obedient")
    for _ in range(2):
        await subject.runtime.stop_container(container_id, 5.0)
        await subject.runtime.stop_sandbox(sandbox_id)
    for _ in range(2):
        await subject.runtime.remove_container(container_id)
        await subject.runtime.remove_sandbox(sandbox_id)
    assert await subject.runtime.pod(spec.pod_uid) == ObservedPod(spec.pod_uid)
    await subject.runtime.stop_container(container_id, 5.0)
    await subject.runtime.stop_sandbox(sandbox_id)


async def test_stopping_a_sandbox_ends_what_runs_in_it(subject):
    spec, sandbox_id, container_id = await subject.running("stubborn")
    await subject.runtime.stop_sandbox(sandbox_id)
    assert (await subject.until(spec.pod_uid, container_id, EXITED)).exit_code == 137
    await subject.clear(spec.pod_uid)


async def test_the_newest_comes_first(subject):
    spec, sandbox_id, first = await subject.running("succeeds")
    await subject.until(spec.pod_uid, first, EXITED)
    second = await subject.runtime.create_container(
        sandbox_id, subject.container("obedient", attempt=1), spec
    )
    await subject.runtime.stop_sandbox(sandbox_id)
    _, newer = await subject.sandbox(attempt=1, uid=spec.pod_uid)
    pod = await subject.runtime.pod(spec.pod_uid)
    assert [sandbox.id for sandbox in pod.sandboxes] == [newer, sandbox_id]
    assert [container.id for container in pod.containers] == [second, first]
    await subject.clear(spec.pod_uid)


async def test_a_name_and_number_is_given_once(subject):
    spec, sandbox_id, _ = await subject.running("obedient")
    with pytest.raises(RuntimeFailure, match="failed to reserve container name"):
        await subject.runtime.create_container(sandbox_id, subject.container("obedient"), spec)
    with pytest.raises(RuntimeFailure, match="failed to reserve sandbox name"):
        await subject.runtime.run_sandbox(spec)
    await subject.clear(spec.pod_uid)


async def test_what_does_not_exist_is_said_so(subject):
    with pytest.raises(RuntimeFailure) as caught:
        await subject.runtime.start_container("0" * 64)
    assert caught.value.code == "NOT_FOUND"
    with pytest.raises(RuntimeFailure) as caught:
        await subject.runtime.pull("docker.io/library/none:latest")
    assert "not found" in caught.value.message or "failed to do request" in caught.value.message
    assert await subject.runtime.image("docker.io/library/none:latest") is None


async def test_images_are_pulled_and_listed(subject):
    await subject.runtime.pull(IMAGE)
    info = await subject.runtime.image(IMAGE)
    assert info is not None
    assert info.size_bytes > 0
    assert any(IMAGE in image.names for image in await subject.runtime.images())


async def test_changes_are_told(subject):
    seen: set[str] = set()

    async def listen() -> None:
        async for uid in subject.runtime.events():
            seen.add(uid)

    listening = asyncio.ensure_future(listen())
    try:
        async with clock.real_timeout(30):
            while True:
                # The first event after another reader has gone may be lost: a later one is not.
                spec, _, container_id = await subject.running("succeeds")
                await subject.until(spec.pod_uid, container_id, EXITED)
                await clock.real_sleep(0.2)
                await subject.clear(spec.pod_uid)
                if spec.pod_uid in seen:
                    break
    finally:
        listening.cancel()
        await asyncio.wait({listening})


async def test_stopping_what_is_stopped_is_no_event(subject):
    """A kubelet looks again at each event: one that it makes itself at each look would never end."""
    told: list[str] = []

    async def listen() -> None:
        async for uid in subject.runtime.events():
            told.append(uid)

    async def caught_up() -> None:
        """What happened before has been told once something that happens now has."""
        async with clock.real_timeout(30):
            while True:
                spec, _, container_id = await subject.running("succeeds")
                await subject.until(spec.pod_uid, container_id, EXITED)
                await clock.real_sleep(0.2)
                await subject.clear(spec.pod_uid)
                if spec.pod_uid in told:
                    return

    listening = asyncio.ensure_future(listen())
    try:
        spec, sandbox_id, _ = await subject.running("obedient")
        await subject.runtime.stop_sandbox(sandbox_id)
        await caught_up()
        told.clear()
        await subject.runtime.stop_sandbox(sandbox_id)
        await caught_up()
        assert spec.pod_uid not in told
    finally:
        listening.cancel()
        await asyncio.wait({listening})
    await subject.clear(spec.pod_uid)


async def test_a_call_that_is_given_up_leaves_nothing_that_cannot_be_found(subject):
    spec = sandbox_spec(f"{os.getpid()}-{next(_numbers)}", 0)
    starting = asyncio.ensure_future(subject.runtime.run_sandbox(spec))
    await clock.real_sleep(0.05)
    starting.cancel()
    await asyncio.wait({starting})
    async with clock.real_timeout(60):
        while True:
            await clock.real_sleep(0.5)
            for sandbox in (await subject.runtime.pod(spec.pod_uid)).sandboxes:
                await subject.runtime.stop_sandbox(sandbox.id)
                await subject.runtime.remove_sandbox(sandbox.id)
            if not (await subject.runtime.pod(spec.pod_uid)).sandboxes:
                break
    # Its name is free again.
    await subject.runtime.run_sandbox(spec)
    await subject.clear(spec.pod_uid)
