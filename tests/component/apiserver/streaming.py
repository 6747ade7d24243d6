"""A node for streams: the real kubelet's server before a runtime's streaming server of our own.

The runtime speaks SPDY as containerd does, and what it runs is chosen by the command: `cat` gives
its input back, `exit N` ends with a code, `yes` prints without end, `hold` waits for the end of its
input, `sizes` tells how the terminal's size changed. Port 7 echoes, 9 closes at once, others refuse.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from kubelet.runtime.base import (
    RUNNING,
    ObservedPod,
    RuntimeContainer,
    Sandbox,
    StreamOptions,
)
from kubelet.server import KubeletServer
from podyard.api.types import Pod
from podyard.base.run import Background
from podyard.base.spdy import CANCEL
from podyard.base.spdy_connection import SpdyConnection
from podyard.base.spdy_session import Ended, Opened, Received
from tests.component.apiserver.served import Certificates

CHUNK = b"y\n" * 8192


@dataclass
class Streams:
    """The streams of one process, from the runtime's side."""

    spdy: SpdyConnection
    ids: dict[str, int] = field(default_factory=dict)
    stdin: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(4))
    sizes: list[tuple[int, int]] = field(default_factory=list)
    resized: asyncio.Event = field(default_factory=asyncio.Event)

    async def print(self, data: bytes, stream: str = "stdout") -> None:
        await self.spdy.send(self.ids[stream], data)

    async def end(self, code: int) -> None:
        status: dict[str, object] = {"metadata": {}, "status": "Success"}
        if code:
            cause = {"reason": "ExitCode", "message": str(code)}
            status = {
                "metadata": {},
                "status": "Failure",
                "reason": "NonZeroExitCode",
                "message": "command terminated with non-zero exit code",
                "details": {"causes": [cause]},
            }
        for name in self.ids.keys() & {"stdout", "stderr"}:
            await self.spdy.send(self.ids[name], b"", fin=True)
        await self.spdy.send(self.ids["error"], json.dumps(status).encode())
        for stream_id in self.ids.values():
            await self.spdy.reset(stream_id, CANCEL)


class FakeRuntime:
    """The part of a runtime that streams need, and its server on loopback.

    Attributes:
        open: connections that are open now.
        printed: how many bytes `yes` got rid of.
        ended: how many commands saw the end of their input.
    """

    def __init__(self) -> None:
        self.open = 0
        self.printed = 0
        self.ended = 0
        self.refusal = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: dict[str, tuple[list[str], StreamOptions]] = {}
        self._server: asyncio.Server | None = None
        self._port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    def cut(self) -> None:
        """Breaks every connection, as the end of a runtime does."""
        for task in list(self._tasks):
            task.cancel()

    async def exec_url(self, container_id: str, command: Sequence[str], options: StreamOptions) -> str:
        return self._url("exec", list(command), options)

    async def attach_url(self, container_id: str, options: StreamOptions) -> str:
        return self._url("attach", ["cat"], options)

    async def forward_url(self, sandbox_id: str, ports: Sequence[int]) -> str:
        return self._url("portforward", [], StreamOptions())

    def _url(self, action: str, command: list[str], options: StreamOptions) -> str:
        token = f"t{len(self._asked)}"
        self._asked[token] = (command, options)
        return f"http://127.0.0.1:{self._port}/{action}/{token}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        task: asyncio.Task[None] | None = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            _, action, token = head.split(" ")[1].split("/")
            if self.refusal:
                body = self.refusal.encode()
                writer.write(b"HTTP/1.1 500 No\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                return
            version = next(
                line.partition(": ")[2]
                for line in head.split("\r\n")
                if line.lower().startswith("x-stream-protocol-version")
            )
            fields = f"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {version}"
            writer.write(f"HTTP/1.1 101 Switching Protocols\r\n{fields}\r\n\r\n".encode())
            spdy = SpdyConnection(reader, writer, client=False)
            if action == "portforward":
                await self._ports(spdy)
            else:
                await self._process(Streams(spdy), *self._asked.pop(token))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            self._tasks.discard(task)
            writer.close()

    async def _process(self, streams: Streams, command: list[str], options: StreamOptions) -> None:
        flags = {"stdin": options.stdin, "stdout": options.stdout, "stderr": options.stderr}
        wanted = {"error", *(name for name, asked in flags.items() if asked)} | (
            {"resize"} if options.tty else set()
        )
        started = asyncio.Event()

        async def run() -> None:
            await started.wait()
            try:
                await self._run(streams, command)
            except ConnectionError:
                pass

        async def read() -> None:
            async for event in streams.spdy.events():
                match event:
                    case Opened(stream_id, headers):
                        streams.ids[headers["streamtype"]] = stream_id
                        await streams.spdy.reply(stream_id)
                        if streams.ids.keys() == wanted:
                            started.set()
                    case Received(stream_id, data) if stream_id == streams.ids.get("resize"):
                        size = json.loads(data)
                        streams.sizes.append((size["Width"], size["Height"]))
                        streams.resized.set()
                    case Received(_, data):
                        await streams.stdin.put(data)
                    case Ended(stream_id) if stream_id == streams.ids.get("stdin"):
                        self.ended += 1
                        await streams.stdin.put(b"")

        # As a runtime does: the end of either is the end of the connection.
        async with Background() as background:
            parts = [background.start(run()), background.start(read())]
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)

    async def _run(self, streams: Streams, command: list[str]) -> None:
        name, *arguments = command
        code = 0
        if name == "cat":
            while data := await streams.stdin.get():
                await streams.print(data)
        elif name == "exit":
            await streams.print(b"out\n")
            await streams.print(b"err\n", "stderr")
            code = int(arguments[0])
        elif name == "yes":
            while True:
                await streams.print(CHUNK)
                self.printed += len(CHUNK)
        elif name == "hold":
            while await streams.stdin.get():
                pass
        elif name == "idle":
            await asyncio.Event().wait()
        elif name == "sizes":
            while len(streams.sizes) < 2:
                await streams.resized.wait()
                streams.resized.clear()
            await streams.print(repr(streams.sizes).encode())
        await streams.end(code)

    async def _ports(self, spdy: SpdyConnection) -> None:
        ports: dict[int, int] = {}
        errors: dict[str, int] = {}
        async for event in spdy.events():
            match event:
                case Opened(stream_id, headers) if headers["streamtype"] == "error":
                    errors[headers["requestid"]] = stream_id
                    await spdy.reply(stream_id)
                case Opened(stream_id, headers):
                    port, error_id = int(headers["port"]), errors.pop(headers["requestid"])
                    await spdy.reply(stream_id)
                    if port == 7:
                        ports[stream_id] = error_id
                        continue
                    if port != 9:
                        await spdy.send(error_id, f"nobody listens on {port}".encode())
                    await spdy.send(error_id, b"", fin=True)
                    await spdy.send(stream_id, b"", fin=True)
                case Received(stream_id, data) if stream_id in ports:
                    await spdy.send(stream_id, data)
                case Ended(stream_id) if stream_id in ports:
                    await spdy.send(ports.pop(stream_id), b"", fin=True)
                    await spdy.send(stream_id, b"", fin=True)


class FakePods:
    """The kubelet's pods: one, with one running container."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self.runtime = runtime
        self.pods: dict[tuple[str, str], Pod] = {}
        self.state = RUNNING

    def find(self, namespace: str, name: str) -> Pod | None:
        return self.pods.get((namespace, name))

    def all(self) -> list[Pod]:
        return list(self.pods.values())

    async def observe(self, uid: str) -> ObservedPod:
        pod = next(pod for pod in self.pods.values() if pod.metadata.uid == uid)
        sandbox = Sandbox("sandbox", uid, pod.metadata.name, pod.metadata.namespace, 0, True, 0.0)
        containers = [
            RuntimeContainer(f"id-{container.name}", "sandbox", uid, container.name, 0, self.state, 0.0)
            for container in pod.spec.containers
        ]
        return ObservedPod(uid, sandboxes=(sandbox,), containers=tuple(containers))

    def container_runs(self, uid: str, container_id: str) -> bool:
        return self.state == RUNNING


@dataclass
class Node:
    """A running node."""

    runtime: FakeRuntime
    pods: FakePods
    port: int


@asynccontextmanager
async def streaming_node(certificates: Certificates) -> AsyncIterator[Node]:
    """Runs the runtime's server and the kubelet's."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates.ca))
    context.load_cert_chain(*certificates.of("node"))
    context.verify_mode = ssl.CERT_OPTIONAL
    runtime = FakeRuntime()
    pods = FakePods(runtime)
    server = KubeletServer(pods, context)  # type: ignore[arg-type]
    await runtime.start()
    await server.start("127.0.0.1", 0)
    try:
        yield Node(runtime, pods, server.port)
    finally:
        await server.stop()
        await runtime.stop()


def kubelet_client(certificates: Certificates) -> ssl.SSLContext:
    """With what an API server dials kubelets."""
    context = ssl.create_default_context(cafile=str(certificates.ca))
    context.load_cert_chain(*certificates.of("kubelet-client"))
    return context
