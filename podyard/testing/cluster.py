"""Real clusters for tests: `PodyardCluster` and, for code on an event loop, `AsyncPodyardCluster`.

    with PodyardCluster(nodes=3, node_grace_s=15, toleration_s=10) as cluster:
        cluster.kubectl("create", "deployment", "web", "--image=nginx", "-r", "3")
        cluster.node("worker-2").kill(wait=True)

A cluster is removed at the end of its block. What a killed process leaves is removed by the next start,
by label; where testcontainers is installed and its reaper not switched off, that one removes it sooner.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
import grpc.aio

from podyard.api import errors
from podyard.api.errors import ApiError
from podyard.api.types import Pod
from podyard.base import clock, ids
from podyard.base.config import TlsFiles
from podyard.client.client import Client
from podyard.client.grpc_transport import GrpcTransport, credentials_of
from podyard.cluster import bringup, exporting, pushing
from podyard.cluster.engine import Engine
from podyard.cluster.errors import ClusterError, NotReadyError
from podyard.cluster.kubectl import find_kubectl
from podyard.cluster.progress import Progress
from podyard.cluster.settings import Settings
from podyard.cluster.spec import (
    COMPONENTS,
    DEFAULT_NODE_GRACE_S,
    DEFAULT_TOLERATION_S,
    NODES,
    ClusterSpec,
    HostPorts,
    Role,
)
from podyard.cluster.state import StateDirectory
from podyard.cluster.verbs import Verbs
from podyard.testing import reaper
from podyard.testing.owners import LABEL_OWNER, is_gone, own

T = TypeVar("T")

_VERB_DEADLINE_S = 180.0
_ANSWER_DEADLINE_S = 60.0
_RETRY_S = 0.2


class Silent:
    """Progress that nobody sees."""

    def step(self, text: str) -> nullcontext[None]:
        return nullcontext()

    def detail(self, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        pass


class AsyncMachine:
    """One container of a cluster, and what may happen to it. Each verb is idempotent."""

    def __init__(self, cluster: AsyncPodyardCluster, name: str, roles: tuple[Role, ...]) -> None:
        self._cluster = cluster
        self._roles = roles
        self.name = name

    async def kill(self, *, wait: bool = False) -> None:
        """Power loss.

        Args:
            wait: here and below: until the node is NotReady, or Ready again; for another part, until it calls
                itself ready again.
        """
        await self._do(Verbs.kill, wait, ready=False)

    async def stop(self, *, wait: bool = False) -> None:
        """Orderly shutdown."""
        await self._do(Verbs.stop, wait, ready=False)

    async def start(self, *, wait: bool = False) -> None:
        """Starts it after kill or stop."""
        await self._do(Verbs.start, wait, ready=True)

    async def pause(self, *, wait: bool = False) -> None:
        """Freezes every process."""
        await self._do(Verbs.pause, wait, ready=False)

    async def resume(self, *, wait: bool = False) -> None:
        """Thaws what pause froze."""
        await self._do(Verbs.resume, wait, ready=True)

    async def partition(self, *, wait: bool = False) -> None:
        """Cuts it off from all other containers of the cluster, both ways."""
        await self._do(Verbs.partition, wait, ready=False)

    async def heal(self, *, wait: bool = False) -> None:
        """Takes the cut of partition away."""
        await self._do(Verbs.heal, wait, ready=True)

    async def _do(self, verb: Callable[[Verbs, str], Awaitable[None]], wait: bool, *, ready: bool) -> None:
        async def work(engine: Engine) -> None:
            verbs = Verbs(engine, self._cluster.name)
            found = await verbs.find(self.name, self._roles)
            before = await verbs.heartbeat(found) if wait and ready else ""
            await verb(verbs, found.name)
            if wait:
                grace_s = self._cluster.node_grace_s if found.role == Role.WORKER else 0.0
                deadline_s = _VERB_DEADLINE_S + grace_s
                await verbs.until_ready(found, ready=ready, timeout_s=deadline_s, after=before)

        await self._cluster.with_engine(work)


class AsyncPodyardCluster:
    """A cluster of its own in containers.

    Args:
        name: of the cluster; a new one by default, so that several run side by side.
        nodes: how many.
        node_grace_s: how long a node may be silent before it is NotReady, seconds.
        toleration_s: how long new pods stay on a lost node, seconds.
        reuse: take a cluster of this name that is there (needs `name`), and leave it at the end.
        progress: where news of the start goes; nowhere by default.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        nodes: int = 2,
        node_grace_s: float = DEFAULT_NODE_GRACE_S,
        toleration_s: int = DEFAULT_TOLERATION_S,
        reuse: bool = False,
        progress: Progress | None = None,
    ) -> None:
        if reuse and name is None:
            raise ValueError("a cluster to be used again needs a name")
        self.name = name or f"test-{ids.hex_id(8)}"
        self._nodes = nodes
        self._settings = Settings(node_grace_s, toleration_s)
        self._reuse = reuse
        self._progress: Progress = progress or Silent()
        self._state = StateDirectory(self.name)

    @property
    def node_grace_s(self) -> float:
        """How long a node may be silent before it is NotReady, seconds."""
        return self._settings.node_grace_s

    # Its life.

    async def start(self) -> Self:
        """Brings it up; returns when a pod has run and answered.

        Raises:
            ClusterError: the host cannot carry it, or it was not ready in time; nothing is left then.
        """
        labels = () if self._reuse else await asyncio.to_thread(_labels, self._progress)
        spec = replace(self._settings, labels=labels).applied(ClusterSpec(name=self.name))

        async def work(engine: Engine) -> None:
            if not self._reuse:
                await remove_leftovers(engine, self._progress)
            await bringup.up(engine, bringup.UpRequest(spec, nodes=self._nodes), self._progress)

        try:
            await self.with_engine(work)
            await self._answers()
        except BaseException:
            if not self._reuse:
                await self.stop()
            raise
        return self

    async def stop(self) -> None:
        """Removes it with all its data; a cluster that is used again stays."""
        if not self._reuse:
            await self.with_engine(lambda engine: bringup.down(engine, self.name, self._progress))

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _answers(self) -> None:
        """Runs a pod until it has answered the kubelet's HTTP probe."""
        transport = GrpcTransport([self.grpc_address], credentials_of(self.admin_files))
        client = Client(transport, field_manager="podyard-testing")
        pod = _answering_pod(f"ready-{ids.hex_id(6)}")
        try:
            async with clock.real_timeout(_ANSWER_DEADLINE_S):
                await _created(client, pod)
                await _ready(client, pod.metadata.name)
        except TimeoutError:
            raise NotReadyError(
                f"no pod has answered within {_ANSWER_DEADLINE_S:g} s",
                hint=f"podyard --name {self.name} kubectl describe pod {pod.metadata.name}",
            ) from None
        finally:
            try:
                await client.delete(Pod, pod.metadata.name, "default", grace_s=0)
            except ApiError:
                pass  # never made, or the cluster is going anyway
            await transport.close()

    # What it is reached by.

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, certificates embedded."""
        return self._state.kubeconfig

    @property
    def admin_files(self) -> TlsFiles:
        """The administrator's certificate, key and the cluster's authority, as files."""
        authority, certificate, key = self._state.admin_files()
        return TlsFiles(ca=str(authority), cert=str(certificate), key=str(key))

    @property
    def rest_address(self) -> str:
        """URL of the API server for this machine."""
        return self._ports().rest_url

    @property
    def grpc_address(self) -> str:
        """`HOST:PORT` of the API server's gRPC for this machine."""
        return self._ports().grpc_target

    def _ports(self) -> HostPorts:
        placement = self._state.placement()
        if placement is None or not placement.ports:
            raise ClusterError(f"the cluster {self.name} does not run", hint="start it first")
        return next(iter(placement.ports.values()))

    def channel(self) -> grpc.aio.Channel:
        """A gRPC channel as the administrator; the caller closes it."""
        return grpc.aio.secure_channel(self.grpc_address, credentials_of(self.admin_files))

    async def kubectl(self, *arguments: str, input: str | None = None, check: bool = True) -> str:
        """Output of the real kubectl.

        Raises:
            ClusterError: it failed (with `check`); the text is what it said.
        """
        return await asyncio.to_thread(run_kubectl, self.kubeconfig, arguments, input, check)

    async def push(self, image: str) -> None:
        """Puts an image of the local engine where the nodes pull from; pods use it by the same name."""
        await self.with_engine(lambda engine: pushing.push(engine, image, self._progress, cluster=self.name))

    # What may happen to it.

    def node(self, name: str) -> AsyncMachine:
        """A node by its name, or what follows the cluster's in it: `worker-1`."""
        return AsyncMachine(self, name, NODES)

    def component(self, name: str) -> AsyncMachine:
        """Another container: `etcd-1`, `apiserver-1`, `scheduler-1`, `controller-manager-1`."""
        return AsyncMachine(self, name, COMPONENTS)

    async def add_node(self) -> None:
        """One node more."""
        await self.with_engine(lambda engine: bringup.add_node(engine, self.name, self._progress))

    async def remove_node(self, name: str) -> None:
        """Takes the last node away again."""

        async def work(engine: Engine) -> None:
            verbs = Verbs(engine, self.name)
            await verbs.remove_node((await verbs.find(name, NODES)).name)

        await self.with_engine(work)

    # What it has said.

    async def logs(self, name: str, *, tail: int | None = None) -> str:
        """What a container's processes have printed."""

        async def work(engine: Engine) -> str:
            found = await Verbs(engine, self.name).find(name, (*NODES, *COMPONENTS))
            chunks = await asyncio.to_thread(list, engine.logs(found.name, follow=False, tail=tail))
            return b"".join(chunks).decode(errors="replace")

        return await self.with_engine(work)

    async def export_logs(self, directory: Path | str) -> None:
        """Copies every container's output, the pods' logs and the main objects into a folder."""
        target = Path(directory)
        await self.with_engine(lambda engine: exporting.export(engine, self.name, target, self._progress))

    async def with_engine(self, work: Callable[[Engine], Awaitable[T]]) -> T:
        """Runs `work` with a connection to the container engine."""
        engine = await Engine.connect()
        try:
            return await work(engine)
        finally:
            await engine.close()


class Machine:
    """As `AsyncMachine`; each verb returns when it is done."""

    def __init__(self, machine: AsyncMachine) -> None:
        self._machine = machine
        self.name = machine.name

    def kill(self, *, wait: bool = False) -> None:
        """Power loss.

        Args:
            wait: as of `AsyncMachine.kill`.
        """
        waited(self._machine.kill(wait=wait))

    def stop(self, *, wait: bool = False) -> None:
        """Orderly shutdown."""
        waited(self._machine.stop(wait=wait))

    def start(self, *, wait: bool = False) -> None:
        """Starts it after kill or stop."""
        waited(self._machine.start(wait=wait))

    def pause(self, *, wait: bool = False) -> None:
        """Freezes every process."""
        waited(self._machine.pause(wait=wait))

    def resume(self, *, wait: bool = False) -> None:
        """Thaws what pause froze."""
        waited(self._machine.resume(wait=wait))

    def partition(self, *, wait: bool = False) -> None:
        """Cuts it off from all other containers of the cluster, both ways."""
        waited(self._machine.partition(wait=wait))

    def heal(self, *, wait: bool = False) -> None:
        """Takes the cut of partition away."""
        waited(self._machine.heal(wait=wait))


class PodyardCluster:
    """As `AsyncPodyardCluster`, for code without an event loop; see there for arguments and errors."""

    def __init__(
        self,
        name: str | None = None,
        *,
        nodes: int = 2,
        node_grace_s: float = DEFAULT_NODE_GRACE_S,
        toleration_s: int = DEFAULT_TOLERATION_S,
        reuse: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self._cluster = AsyncPodyardCluster(
            name,
            nodes=nodes,
            node_grace_s=node_grace_s,
            toleration_s=toleration_s,
            reuse=reuse,
            progress=progress,
        )
        self.name = self._cluster.name

    def start(self) -> Self:
        """Brings it up; returns when a pod has run and answered."""
        waited(self._cluster.start())
        return self

    def stop(self) -> None:
        """Removes it with all its data; a cluster that is used again stays."""
        waited(self._cluster.stop())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, certificates embedded."""
        return self._cluster.kubeconfig

    @property
    def admin_files(self) -> TlsFiles:
        """The administrator's certificate, key and the cluster's authority, as files."""
        return self._cluster.admin_files

    @property
    def rest_address(self) -> str:
        """URL of the API server for this machine."""
        return self._cluster.rest_address

    @property
    def grpc_address(self) -> str:
        """`HOST:PORT` of the API server's gRPC for this machine."""
        return self._cluster.grpc_address

    def channel(self) -> grpc.Channel:
        """A gRPC channel as the administrator; the caller closes it."""
        return grpc.secure_channel(self.grpc_address, credentials_of(self.admin_files))

    def kubectl(self, *arguments: str, input: str | None = None, check: bool = True) -> str:
        """Output of the real kubectl."""
        return run_kubectl(self.kubeconfig, arguments, input, check)

    def push(self, image: str) -> None:
        """Puts an image of the local engine where the nodes pull from; pods use it by the same name."""
        waited(self._cluster.push(image))

    def node(self, name: str) -> Machine:
        """A node by its name, or what follows the cluster's in it: `worker-1`."""
        return Machine(self._cluster.node(name))

    def component(self, name: str) -> Machine:
        """Another container: `etcd-1`, `apiserver-1`, `scheduler-1`, `controller-manager-1`."""
        return Machine(self._cluster.component(name))

    def add_node(self) -> None:
        """One node more."""
        waited(self._cluster.add_node())

    def remove_node(self, name: str) -> None:
        """Takes the last node away again."""
        waited(self._cluster.remove_node(name))

    def logs(self, name: str, *, tail: int | None = None) -> str:
        """What a container's processes have printed."""
        return waited(self._cluster.logs(name, tail=tail))

    def export_logs(self, directory: Path | str) -> None:
        """Copies every container's output, the pods' logs and the main objects into a folder."""
        waited(self._cluster.export_logs(directory))


def waited(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end, in a thread: the caller may itself be called from a loop's thread."""
    answers: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(asyncio.run(work))
        except BaseException as error:  # handed on below
            failures.append(error)

    thread = threading.Thread(target=run, name="podyard")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return answers[0]


async def remove_leftovers(engine: Engine, progress: Progress) -> list[str]:
    """Removes the test clusters of processes that have ended; answers their names."""
    owners = await engine.labelled(LABEL_OWNER)
    left = sorted(name for name, owner in owners.items() if is_gone(owner))
    for name in left:
        await bringup.down(engine, name, progress)
    return left


def run_kubectl(kubeconfig: Path, arguments: tuple[str, ...], input: str | None, check: bool) -> str:
    """Output of the real kubectl with a kubeconfig.

    Raises:
        ClusterError: it failed (with `check`), or there is none.
    """
    done = subprocess.run(
        [find_kubectl(), *arguments],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        input=input,
        capture_output=True,
        text=True,
        check=False,
    )
    if check and done.returncode:
        words = " ".join(arguments)
        raise ClusterError(
            f"kubectl {words} ended with {done.returncode}: {done.stderr.strip()}",
            hint="with check=False its failure is an answer like any other",
        )
    return done.stdout


def _labels(progress: Progress) -> tuple[tuple[str, str], ...]:
    owner = own()
    return (*(((LABEL_OWNER, owner),) if owner else ()), *reaper.labels(progress.note))


def _answering_pod(name: str) -> Pod:
    serve = "mkdir -p /www && echo ready > /www/index.html && exec httpd -f -p 8080 -h /www"
    container = {
        "name": "answer",
        "image": "busybox",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", serve],
        "readinessProbe": {
            "handler": {"httpGet": {"path": "/", "port": {"type": 0, "intVal": 8080}}},
            "periodSeconds": 1,
        },
    }
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    return Pod(metadata={"name": name, "namespace": "default"}, spec=spec)


async def _created(client: Client, pod: Pod) -> None:
    """The account that every pod has comes a moment after its namespace."""
    while True:
        try:
            await client.create(pod)
            return
        except (errors.Forbidden, errors.NotFound, errors.Unavailable):
            await clock.real_sleep(_RETRY_S)
        except errors.AlreadyExists:
            return  # an answer that was lost


async def _ready(client: Client, name: str) -> None:
    while True:
        try:
            status = (await client.get(Pod, name, "default")).status
            if any(entry.type == "Ready" and entry.status == "True" for entry in status.conditions):
                return
        except errors.Unavailable:
            pass
        await clock.real_sleep(_RETRY_S)
