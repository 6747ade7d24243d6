"""CPU of the API server per operation, REST and gRPC: `python -m tests.bench.bench_api [etcd-host:port]`.

The server runs in a process of its own over the memory store, or over the etcd given, behind its
real listeners with mutual TLS. For each operation one JSON line: the server's CPU and the wall time
per operation (for a fan-out: per event delivered). Both ways in do the same work.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import aiohttp

from apiserver.store.etcd import EtcdStore
from apiserver.store.memory import MemoryStore
from podyard.api.types import ListOptions, Pod, rpc
from podyard.base.config import TlsFiles
from podyard.client.client import Client, rpc_class
from podyard.client.grpc_transport import GrpcTransport, credentials_of
from tests.bench.load import many
from tests.component.apiserver.served import Certificates, make_certificates, serve

PODS = "/api/v1/namespaces/default/pods"
WRITERS = 16
_TICKS = os.sysconf("SC_CLK_TCK")
_names = itertools.count()


def pod_value(name: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "nginx",
        "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}},
        "env": [{"name": f"VARIABLE_{index}", "value": "x" * 20} for index in range(5)],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "bench"}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
    }


def new_name() -> str:
    return f"bench-{next(_names):06}"


class Caller(Protocol):
    """The operations, over one way in."""

    name: str

    async def create(self, name: str) -> None: ...
    async def get(self, name: str) -> None: ...
    async def list(self) -> int: ...
    async def patch(self, name: str, value: int) -> None: ...
    def watch(self) -> AsyncIterator[int]: ...
    async def delete_all(self) -> None: ...


class Rest:
    """JSON over HTTPS, as an ordinary client library."""

    name = "rest"

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def create(self, name: str) -> None:
        await self._send("POST", PODS, json.dumps(pod_value(name)).encode(), "application/json")

    async def get(self, name: str) -> None:
        await self._send("GET", f"{PODS}/{name}")

    async def list(self) -> int:
        return (await self._send("GET", PODS)).count(b'"uid"')

    async def patch(self, name: str, value: int) -> None:
        body = b'{"metadata":{"labels":{"step":"%d"}}}' % value
        await self._send("PATCH", f"{PODS}/{name}", body, "application/merge-patch+json")

    async def watch(self) -> AsyncIterator[int]:
        async with self._session.get(f"{PODS}?watch=1&resourceVersion=0&labelSelector=app") as answer:
            yield 0
            async for chunk in answer.content.iter_any():
                yield chunk.count(b"\n")

    async def delete_all(self) -> None:
        await self._send("DELETE", f"{PODS}?gracePeriodSeconds=0")

    async def _send(self, method: str, path: str, data: bytes | None = None, kind: str = "") -> bytes:
        headers = {"Content-Type": kind} if kind else {}
        async with self._session.request(method, path, data=data, headers=headers) as answer:
            body = await answer.read()
            assert answer.status < 300, body
            return body


class Grpc:
    """The typed service."""

    name = "grpc"

    def __init__(self, transport: GrpcTransport) -> None:
        self._transport = transport
        self._client = Client(transport)

    async def create(self, name: str) -> None:
        value = pod_value(name)
        spec = value["spec"] | {"containers": [_container(value["spec"]["containers"][0])]}
        await self._client.create(Pod(metadata=value["metadata"], spec=spec))

    async def get(self, name: str) -> None:
        await self._client.get(Pod, name, "default")

    async def list(self) -> int:
        return len((await self._client.list(Pod, "default")).items)

    async def patch(self, name: str, value: int) -> None:
        await self._client.patch(Pod, name, "default", body={"metadata": {"labels": {"step": str(value)}}})

    async def watch(self) -> AsyncIterator[int]:
        options = ListOptions(resourceVersion="0", labelSelector="app")
        request = rpc.ListRequest(namespace="default", options=options)
        yield 0
        batch_of = rpc_class_of_pods()
        async for batch in self._transport.stream("/podyard.core.v1.PodService/Watch", request, batch_of):
            yield len(batch.events)  # type: ignore[attr-defined]

    async def delete_all(self) -> None:
        await self._client.delete_collection(Pod, "default")


def rpc_class_of_pods() -> Any:
    from podyard.api import resources

    return rpc_class(resources.by_message(Pod), "WatchBatch")


def _container(value: dict[str, Any]) -> dict[str, Any]:
    requests = {key: {"string": text} for key, text in value["resources"]["requests"].items()}
    return value | {"resources": {"requests": requests}}


class Bench:
    """Measures one way in.

    Args:
        pid: of the server.
    """

    def __init__(self, caller: Caller, pid: int) -> None:
        self._caller = caller
        self._pid = pid

    async def measure(self, what: str, count: int, work: Callable[[], Awaitable[object]]) -> None:
        cpu, wall = cpu_s(self._pid), time.perf_counter()
        await work()
        cpu, wall = cpu_s(self._pid) - cpu, time.perf_counter() - wall
        row = {"name": f"{self._caller.name} {what}", "count": count}
        row["server_cpu_us"] = round(cpu / count * 1e6, 1)
        row["wall_us"] = round(wall / count * 1e6, 1)
        print(json.dumps(row), flush=True)

    async def run(self) -> None:
        caller = self._caller
        names = [new_name() for _ in range(1_000)]
        await many(caller.create, [new_name() for _ in range(50)], writers=WRITERS)
        await caller.delete_all()
        await self.measure("create", len(names), lambda: many(caller.create, names, writers=WRITERS))
        await self.measure("get", len(names) * 2, lambda: many(caller.get, names * 2, writers=WRITERS))
        assert await caller.list() == len(names)
        await self.measure("list of 1,000", 20, lambda: repeat(caller.list, 20))
        await self.measure("patch", len(names), lambda: self._patches(names, 0))
        for watchers in (1, 50, 200):
            changes = names[: 1_000 if watchers == 1 else 100]
            events = len(changes) * watchers
            await self._fan_out(watchers, changes, events)
        await caller.delete_all()

    async def _patches(self, names: list[str], value: int) -> None:
        await many(lambda name: self._caller.patch(name, value), names, writers=WRITERS)

    async def _fan_out(self, watchers: int, names: list[str], events: int) -> None:
        total = await self._caller.list()
        received = [0] * watchers
        all_here = asyncio.Event()

        async def read(index: int) -> None:
            async for count in self._caller.watch():
                received[index] += count
                if sum(received) >= wanted:
                    all_here.set()

        wanted = total * watchers
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(read(index)) for index in range(watchers)]
            await all_here.wait()
            all_here.clear()
            wanted += events

            async def work() -> None:
                await self._patches(names, watchers)
                await all_here.wait()

            await self.measure(f"patches seen by {watchers} watchers, per event", events, work)
            for task in tasks:
                task.cancel()


async def repeat(work: Callable[[], Awaitable[object]], count: int) -> None:
    for _ in range(count):
        await work()


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def server(folder: Path, endpoint: str) -> None:
    """The child: serves until its input ends; says its ports."""
    store = EtcdStore([endpoint]) if endpoint else MemoryStore()
    async with serve(store, Certificates(folder)) as served:
        print(served.rest_port, served.grpc_port, flush=True)
        await asyncio.to_thread(sys.stdin.read)


@asynccontextmanager
async def running(folder: Path, endpoint: str) -> AsyncIterator[tuple[int, int, int]]:
    """A server in a process of its own: its id and ports."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.bench_api", "--serve", str(folder), endpoint,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    rest_port, grpc_port = map(int, (await process.stdout.readline()).split())
    try:
        yield process.pid, rest_port, grpc_port
    finally:
        process.stdin.close()
        await process.wait()


async def main(endpoint: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        certificates = make_certificates(Path(name))
        cert, key = certificates.of("client")
        context = ssl.create_default_context(cafile=str(certificates.ca))
        context.load_cert_chain(cert, key)
        async with running(Path(name), endpoint) as (pid, rest_port, grpc_port):
            connector = aiohttp.TCPConnector(ssl=context, limit=0)
            url = f"https://localhost:{rest_port}"
            timeout = aiohttp.ClientTimeout(total=None)
            async with aiohttp.ClientSession(url, connector=connector, timeout=timeout) as session:
                await Bench(Rest(session), pid).run()
            tls = TlsFiles(ca=str(certificates.ca), cert=str(cert), key=str(key))
            transport = GrpcTransport([f"localhost:{grpc_port}"], credentials_of(tls))
            await Bench(Grpc(transport), pid).run()
            await transport.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        asyncio.run(server(Path(sys.argv[2]), sys.argv[3]))
    else:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else ""))
