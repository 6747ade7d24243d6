"""Exec, attach and port-forward through the real API server and the real kubelet's server.

Every protocol that clients use, errors before the upgrade, and above all the ends: whoever goes at
whatever moment, no connection and no task is left.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import aiohttp
import grpc
import pytest
import pytest_asyncio

from apiserver.auth.authz import Attributes, Decision
from apiserver.store.memory import MemoryStore
from kubelet.runtime.base import EXITED
from podyard.api import codec
from podyard.api.types import Node as NodeObject
from podyard.api.types import Pod, rpc, rpc_core_v1
from podyard.base import upgrade
from podyard.base.spdy_connection import SpdyConnection
from podyard.base.spdy_session import Ended, Received, Replied, Session
from tests.component.apiserver.served import Certificates, Served, serve
from tests.component.apiserver.streaming import Node, kubelet_client, streaming_node

DEADLINE_S = 10.0
V5 = "v5.channel.k8s.io"
V4 = "v4.channel.k8s.io"
BASE64 = "v4.base64.channel.k8s.io"
OLD = "channel.k8s.io"
EXEC = "/api/v1/namespaces/default/pods/web/exec"
FORWARD = "/api/v1/namespaces/default/pods/web/portforward"


class Readers:
    """Lets everything but `create` on exec."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.strict = False

    def authorize(self, attributes: Attributes) -> Decision:
        if attributes.subresource in ("exec", "attach", "portforward"):
            self.asked.append((attributes.verb, attributes.subresource))
            return Decision(not self.strict or attributes.verb != "create")
        return Decision(True)


@dataclass
class World:
    """A served pod `web` with a container `main` on a node of ours."""

    served: Served
    node: Node
    authorizer: Readers

    async def opened(self) -> None:
        """The runtime has its connection."""
        async with asyncio.timeout(DEADLINE_S):
            while not self.node.runtime.open:  # noqa: ASYNC110 - a state of the fake
                await asyncio.sleep(0.01)

    async def quiet(self, *, stuck: bool = False) -> None:
        """Nothing of any stream is left: no task that carries one, no connection to the runtime.

        Args:
            stuck: the runtime waits for a process that takes no input, and so does not see the end.
        """
        async with asyncio.timeout(DEADLINE_S):
            while carrying():  # noqa: ASYNC110 - a state of the product
                await asyncio.sleep(0.01)
            if stuck:
                self.node.runtime.cut()
            while self.node.runtime.open:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def carrying() -> list[asyncio.Task[Any]]:
    """Tasks of a stream that still run."""
    names = ("splice", "run_command", "serve_command", "listen", "carry", "keep_alive", "forward")
    return [
        task
        for task in asyncio.all_tasks()
        if any(getattr(task.get_coro(), "__qualname__", "").rpartition(".")[2] == name for name in names)
    ]


@pytest_asyncio.fixture
async def world(certificates: Certificates) -> AsyncIterator[World]:
    authorizer = Readers()
    async with (
        streaming_node(certificates) as node,
        serve(
            MemoryStore(), certificates, authorizer=authorizer, kubelet_tls=kubelet_client(certificates)
        ) as served,
    ):
        machine = NodeObject(
            metadata={"name": "node-1"},
            status={
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": node.port}},
            },
        )
        await create(served, "nodes", "v1", "Node", machine)
        await update_status(served, machine)
        for name, containers, placed in (
            ("web", ["main"], "node-1"),
            ("two", ["one", "other"], "node-1"),
            ("new", ["main"], ""),
        ):
            pod = Pod(
                metadata={"name": name, "namespace": "default"},
                spec={
                    "nodeName": placed,
                    "containers": [{"name": container, "image": "busybox"} for container in containers],
                },
            )
            made = await create(served, "namespaces/default/pods", "v1", "Pod", pod)
            pod.metadata.uid = made["metadata"]["uid"]
            if placed:
                node.pods.pods["default", name] = pod
        yield World(served, node, authorizer)


async def create(served: Served, path: str, version: str, kind: str, obj: Any) -> Any:
    body = codec.encode_json(obj, version, kind)
    headers = {"Content-Type": "application/json"}
    async with served.session.post(f"/api/v1/{path}", data=body, headers=headers) as answer:
        assert answer.status == 201, await answer.text()
        return await answer.json()


async def update_status(served: Served, node: NodeObject) -> None:
    body = codec.encode_json(node, "v1", "Node")
    headers = {"Content-Type": "application/json"}
    async with served.session.put("/api/v1/nodes/node-1/status", data=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()


def url_of(path: str, *command: str, **flags: Any) -> str:
    query = [("command", part) for part in command] + [(name, str(value)) for name, value in flags.items()]
    return f"{path}?{urlencode(query)}" if query else path


def frame(protocol: str, channel: int, data: bytes) -> bytes | str:
    return f"{channel}{base64.b64encode(data).decode()}" if "base64" in protocol else bytes((channel,)) + data


async def send(socket: aiohttp.ClientWebSocketResponse, protocol: str, channel: int, data: bytes) -> None:
    said = frame(protocol, channel, data)
    await (socket.send_str(said) if isinstance(said, str) else socket.send_bytes(said))


async def heard(socket: aiohttp.ClientWebSocketResponse) -> dict[int, bytes]:
    """All that a server says until it closes, by channel."""
    found: dict[int, bytes] = {}
    async with asyncio.timeout(DEADLINE_S):
        async for message in socket:
            if message.type == aiohttp.WSMsgType.TEXT:
                channel, data = int(message.data[0]), base64.b64decode(message.data[1:])
            else:
                channel, data = message.data[0], message.data[1:]
            found[channel] = found.get(channel, b"") + data
    assert socket.close_code == 1000
    return found


def exit_code(raw: bytes) -> int:
    status = json.loads(raw)
    if status["status"] == "Success":
        return 0
    assert status["reason"] == "NonZeroExitCode", status
    return int(status["details"]["causes"][0]["message"])


@pytest.mark.parametrize("protocol", [V5, V4, BASE64])
@pytest.mark.parametrize("code", [0, 3, 137])
async def test_output_and_code_over_websocket(world: World, protocol: str, code: int) -> None:
    url = url_of(EXEC, "exit", str(code), stdout=1, stderr=1)
    async with world.served.session.ws_connect(url, protocols=(protocol,)) as socket:
        assert socket.protocol == protocol
        found = await heard(socket)
    assert (found[1], found[2], exit_code(found[3])) == (b"out\n", b"err\n", code)
    await world.quiet()


async def test_the_first_protocol_tells_failures_as_text(world: World) -> None:
    url = url_of(EXEC, "exit", "3", stdout="true", stderr="true")
    async with world.served.session.ws_connect(url, protocols=(OLD,)) as socket:
        found = await heard(socket)
    assert found[3].decode().endswith("command terminated with exit code 3")
    async with world.served.session.ws_connect(url_of(EXEC, "exit", "0", stdout=1, stderr=1)) as socket:
        assert socket.protocol is None
        found = await heard(socket)
    assert 3 not in found


async def test_the_clients_order_of_protocols_decides(world: World) -> None:
    url = url_of(EXEC, "exit", "0", stdout=1, stderr=1)
    async with world.served.session.ws_connect(url, protocols=("nonsense", V4, V5)) as socket:
        assert socket.protocol == V4
        await heard(socket)
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await world.served.session.ws_connect(url, protocols=("nonsense",))
    assert refused.value.status == 403


async def test_input_and_its_end(world: World) -> None:
    """Far more than all buffers on the way hold, given back whole."""
    data = bytes(range(256)) * 4096 * 5
    url = url_of(EXEC, "cat", stdin=1, stdout=1)
    async with world.served.session.ws_connect(url, protocols=(V5,), max_msg_size=0) as socket:

        async def feed() -> None:
            for start in range(0, len(data), 30_000):
                await send(socket, V5, 0, data[start : start + 30_000])
            await socket.send_bytes(bytes((255, 0)))

        async with asyncio.TaskGroup() as group:
            group.create_task(feed())
            found = await heard(socket)
    assert found[1] == data
    assert exit_code(found[3]) == 0
    await world.quiet()


async def test_a_terminals_sizes_arrive(world: World) -> None:
    url = url_of(EXEC, "sizes", stdin=1, stdout=1, stderr=1, tty=1)
    async with world.served.session.ws_connect(url, protocols=(V5,)) as socket:
        for size in (b'{"Width":80,"Height":24}', b"nonsense", b'{"Width":100,"Height":50}\n'):
            await send(socket, V5, 4, size)
        found = await heard(socket)
    assert found[1] == b"[(80, 24), (100, 50)]"
    assert 2 not in found


async def test_attach(world: World) -> None:
    url = url_of(EXEC.replace("exec", "attach"), stdin=1, stdout=1)
    async with world.served.session.ws_connect(url, protocols=(V5,)) as socket:
        await send(socket, V5, 0, b"hello")
        await socket.send_bytes(bytes((255, 0)))
        found = await heard(socket)
    assert found[1] == b"hello"


class Spdy:
    """A client that asks for SPDY itself, as kubectl before 1.31."""

    def __init__(self, world: World, certificates: Certificates) -> None:
        self.world = world
        self._tls = ssl.create_default_context(cafile=str(certificates.ca))
        self._tls.load_cert_chain(*certificates.of("client"))

    async def ask(self, url: str, version: str = V4, method: str = "POST") -> upgrade.Upgraded:
        fields = [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"), ("X-Stream-Protocol-Version", version)]
        request = upgrade.request_head(method, url, "localhost", fields)
        port = self.world.served.rest_port
        return await upgrade.ask_upgrade(
            "localhost", port, request, tls=self._tls, server_hostname="localhost"
        )


@pytest.fixture
def spdy(world: World, certificates: Certificates) -> Spdy:
    return Spdy(world, certificates)


async def run_spdy(upgraded: upgrade.Upgraded, *types: str, stdin: bytes = b"") -> dict[str, bytes]:
    connection = SpdyConnection(upgraded.reader, upgraded.writer, client=True)
    ids = {await connection.open({"streamType": name}): name for name in ("error", *types)}
    found = dict.fromkeys(ids.values(), b"")
    waiting = set(ids)
    async with asyncio.timeout(DEADLINE_S):
        async for event in connection.events():
            match event:
                case Replied(stream_id):
                    waiting.discard(stream_id)
                    if not waiting and "stdin" in types:
                        stream = next(number for number, name in ids.items() if name == "stdin")
                        await connection.send(stream, stdin, fin=True)
                case Received(stream_id, data):
                    found[ids[stream_id]] += data
                case Ended(stream_id) if ids[stream_id] == "error":
                    break
    await upgrade.close(upgraded.writer)
    return found


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_spdy_is_passed_through(world: World, spdy: Spdy, method: str) -> None:
    upgraded = await spdy.ask(url_of(EXEC, "exit", "3", stdout=1, stderr=1), method=method)
    assert upgraded.head.get("x-stream-protocol-version") == V4
    assert upgraded.head.get("upgrade") == "SPDY/3.1"
    found = await run_spdy(upgraded, "stdout", "stderr")
    assert (found["stdout"], found["stderr"], exit_code(found["error"])) == (b"out\n", b"err\n", 3)
    upgraded = await spdy.ask(url_of(EXEC, "cat", stdin=1, stdout=1))
    found = await run_spdy(upgraded, "stdin", "stdout", stdin=b"x" * 300_000)
    assert found["stdout"] == b"x" * 300_000
    await world.quiet()


async def test_other_requests_go_on_while_a_connection_is_taken_over(world: World, spdy: Spdy) -> None:
    upgraded = await spdy.ask(url_of(EXEC, "hold", stdin=1, stdout=1))
    for _ in range(3):
        async with world.served.session.get("/api/v1/namespaces/default/pods") as answer:
            assert answer.status == 200
    await upgrade.close(upgraded.writer)
    await world.quiet()


@pytest.mark.parametrize("part", ["exec", "attach"])
@pytest.mark.parametrize(
    ("pod", "query", "code", "text"),
    [
        ("none", {}, 404, 'pods "none" not found'),
        ("web", {"container": "x"}, 400, "container x is not valid for pod web"),
        ("two", {}, 400, "a container name must be specified for pod two, choose one of: [one other]"),
        ("new", {}, 400, "pod new does not have a host assigned"),
        ("web", {}, 400, "Upgrade request required"),
    ],
)
async def test_refusals_before_the_upgrade_are_statuses(
    world: World, part: str, pod: str, query: dict[str, str], code: int, text: str
) -> None:
    url = url_of(f"/api/v1/namespaces/default/pods/{pod}/{part}", stdout=1, **query)
    for method in ("GET", "POST"):
        async with world.served.session.request(method, url) as answer:
            status = await answer.json()
            assert (answer.status, status["kind"], status["message"]) == (code, "Status", text)
    async with world.served.session.put(url) as answer:
        assert answer.status == 405


async def test_what_the_kubelet_refuses(world: World, spdy: Spdy) -> None:
    """A WebSocket learns it as the status of the stream, SPDY as the answer itself."""
    world.node.pods.state = EXITED
    url = url_of(EXEC, "cat", stdout=1)
    async with world.served.session.ws_connect(url, protocols=(V5,)) as socket:
        status = json.loads((await heard(socket))[3])
    text = 'unable to upgrade connection: container not found ("main")'
    assert (status["reason"], status["message"], status["code"]) == (
        "InternalError",
        f"Internal error occurred: {text}",
        500,
    )
    with pytest.raises(upgrade.UpgradeRefused, match="container not found") as refused:
        await spdy.ask(url)
    assert refused.value.head.status == 500
    world.node.pods.state = "running"
    with pytest.raises(upgrade.UpgradeRefused, match="at least 1 of stdin, stdout, stderr"):
        await spdy.ask(url_of(EXEC, "cat"))
    world.node.runtime.refusal = "the runtime says no"
    with pytest.raises(upgrade.UpgradeRefused, match="the runtime says no"):
        await spdy.ask(url)
    await world.quiet()


async def test_only_the_api_server_gets_streams_of_the_kubelet(
    world: World, certificates: Certificates
) -> None:
    for name, code in (("client", 403), ("", 401)):
        tls = ssl.create_default_context(cafile=str(certificates.ca))
        if name:
            tls.load_cert_chain(*certificates.of(name))
        fields = [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1")]
        request = upgrade.request_head("POST", "/exec/default/web/main?output=1", "x", fields)
        with pytest.raises(upgrade.UpgradeRefused) as refused:
            await upgrade.ask_upgrade(
                "127.0.0.1", world.node.port, request, tls=tls, server_hostname="node-1"
            )
        assert refused.value.head.status == code


async def test_a_kubelet_that_is_gone(world: World, spdy: Spdy, certificates: Certificates) -> None:
    machine = NodeObject(
        metadata={"name": "node-1"},
        status={
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
        },
    )
    await update_status(world.served, machine)
    async with world.served.session.ws_connect(url_of(EXEC, "cat", stdout=1), protocols=(V5,)) as socket:
        status = json.loads((await heard(socket))[3])
    assert "error sending request: dial tcp 127.0.0.1:1" in status["message"]
    with pytest.raises(upgrade.UpgradeRefused) as refused:
        await spdy.ask(url_of(EXEC, "cat", stdout=1))
    body = json.loads(refused.value.body)
    assert (body["code"], body.get("reason")) == (500, None)
    assert body["message"].startswith("error dialing backend: dial tcp 127.0.0.1:1")


async def test_create_is_asked_for_whatever_the_method(world: World) -> None:
    """Else who may read a pod could run commands in it."""
    world.authorizer.strict = True
    for part in ("exec", "attach", "portforward"):
        url = url_of(EXEC.replace("exec", part), stdout=1)
        for method in ("GET", "POST"):
            async with world.served.session.request(method, url) as answer:
                status = await answer.json()
                assert answer.status == 403, status
                assert f'cannot create resource "pods/{part}"' in status["message"]
    assert ("get", "exec") in world.authorizer.asked


# Who goes, and when: after the upgrade, in the middle of output, of input, while nothing happens.
COMMANDS = {"nothing": ("idle",), "output": ("yes",), "input": ("idle",), "both": ("cat",)}


async def busy(world: World, what: str, socket: aiohttp.ClientWebSocketResponse) -> None:
    """Waits until the stream is in the middle of it."""
    if what in ("input", "both"):
        for _ in range(20):
            await send(socket, V5, 0, b"x" * 60_000)
            if what == "both":
                await socket.receive()
    elif what == "output":
        async with asyncio.timeout(DEADLINE_S):
            while world.node.runtime.printed < 100_000:
                await socket.receive()
    await world.opened()


@pytest.mark.parametrize("what", COMMANDS)
@pytest.mark.parametrize("how", ["closes", "is cut off"])
async def test_a_client_that_goes_leaves_nothing(world: World, what: str, how: str) -> None:
    url = url_of(EXEC, *COMMANDS[what], stdin=1, stdout=1)
    socket = await world.served.session.ws_connect(url, protocols=(V5,), max_msg_size=0)
    await asyncio.wait([asyncio.ensure_future(busy(world, what, socket))], timeout=2.0)
    assert world.node.runtime.open == 1
    if how == "closes" and what != "input":
        await socket.close()
    else:
        response: Any = socket._response
        response.connection.transport.abort()
    await world.quiet(stuck=what in ("input", "both"))


@pytest.mark.parametrize("command", ["idle", "yes"])
async def test_a_runtime_that_goes_ends_the_stream(world: World, command: str) -> None:
    """And what was cut off is not called a success."""
    url = url_of(EXEC, command, stdin=1, stdout=1)
    async with world.served.session.ws_connect(url, protocols=(V5,)) as socket:
        await socket.receive()
        await world.opened()
        world.node.runtime.cut()
        found = await heard(socket)
    status = json.loads(found[3])
    assert (status["status"], status["reason"]) == ("Failure", "InternalError")
    await world.quiet()


@pytest.mark.parametrize("wire", ["websocket", "spdy"])
async def test_a_server_that_stops_ends_its_streams(world: World, spdy: Spdy, wire: str) -> None:
    """In time for its supervisor, whatever the streams do."""
    url = url_of(EXEC, "yes", stdout=1)
    if wire == "spdy":
        upgraded = await spdy.ask(url)
        reading = upgraded.reader.read
    else:
        socket = await world.served.session.ws_connect(url, protocols=(V5,))
        reading = socket.receive
    await world.opened()
    async with asyncio.timeout(DEADLINE_S):
        await world.served.stop_rest()
        while carrying():  # noqa: ASYNC110 - a state of the product
            await asyncio.sleep(0.01)
    if wire == "spdy":
        while await reading():
            pass
        await upgrade.close(upgraded.writer)
    else:
        while not socket.closed:
            await reading()
    await world.quiet()


async def test_a_reader_that_stops_stops_the_command(world: World) -> None:
    """Nothing on the way collects what the client does not take."""
    url = url_of(EXEC, "yes", stdout=1)
    socket = await world.served.session.ws_connect(url, protocols=(V5,))
    before = -1
    async with asyncio.timeout(DEADLINE_S):
        while before != world.node.runtime.printed:
            before = world.node.runtime.printed
            await asyncio.sleep(0.3)
    # The kernel's buffers of three connections, not more.
    assert before < 64 * 1024 * 1024
    await socket.receive()
    response: Any = socket._response
    response.connection.transport.abort()
    await world.quiet()


@pytest.mark.parametrize("protocol", [V4, BASE64])
async def test_ports_over_the_old_websocket_protocol(world: World, protocol: str) -> None:
    url = url_of(FORWARD, ports="7,81")
    async with world.served.session.ws_connect(url, protocols=(V5, protocol)) as socket:
        assert socket.protocol == protocol
        found: dict[int, bytes] = {}
        await send(socket, protocol, 0, b"ping")
        async with asyncio.timeout(DEADLINE_S):
            while found.get(0, b"")[2:] != b"ping" or not found.get(3, b"")[2:]:
                message = await socket.receive()
                if message.type == aiohttp.WSMsgType.TEXT:
                    channel, data = int(message.data[0]), base64.b64decode(message.data[1:])
                else:
                    channel, data = message.data[0], message.data[1:]
                found[channel] = found.get(channel, b"") + data
    ports = {channel: int.from_bytes(data[:2], "little") for channel, data in found.items()}
    assert ports == {0: 7, 1: 7, 2: 81, 3: 81}
    assert found[3][2:] == b"nobody listens on 81"
    await world.quiet()


async def test_ports_are_numbers_that_exist(world: World) -> None:
    for ports, text in (("0", "must be > 0"), ("x", "invalid syntax"), ("", "invalid syntax")):
        url = url_of(FORWARD, ports=ports)
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await world.served.session.ws_connect(url, protocols=(V4,))
        assert refused.value.status == 400, text


async def test_spdy_in_a_websocket(world: World) -> None:
    """kubectl's port-forward: SPDY's bytes in binary messages, however they are cut."""
    tunnel = "SPDY/3.1+portforward.k8s.io"
    async with world.served.session.ws_connect(FORWARD, protocols=(tunnel,)) as socket:
        assert socket.protocol == tunnel
        session = Session(client=True)
        session.open({"streamtype": "error", "port": "7", "requestid": "0"}, fin=True)
        data_id = session.open({"streamtype": "data", "port": "7", "requestid": "0"})
        session.send(data_id, b"through", fin=True)
        for byte in session.take_outgoing():
            await socket.send_bytes(bytes((byte,)))
        found = b""
        async with asyncio.timeout(DEADLINE_S):
            while not found.endswith(b"through"):
                message = await socket.receive()
                for event in session.receive(message.data):
                    if isinstance(event, Received):
                        found += event.data
    await world.quiet()


class Calls:
    """gRPC's streams."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def open(self, verb: str, answer: type[Any]) -> Any:
        request = getattr(rpc_core_v1, f"Pod{verb}Request")
        return self._served.channel.stream_stream(
            f"/podyard.core.v1.PodService/{verb}",
            request_serializer=request.SerializeToString,
            response_deserializer=answer.FromString,
        )()


def exec_start(*command: str, **options: Any) -> Any:
    start = {"namespace": "default", "name": "web", "options": {"command": command, **options}}
    return rpc_core_v1.PodExecRequest(start=start)


async def answers(call: Any) -> list[Any]:
    async with asyncio.timeout(DEADLINE_S):
        return [answer async for answer in call]


async def test_exec_over_grpc(world: World) -> None:
    call = Calls(world.served).open("Exec", rpc.CommandOutput)
    await call.write(exec_start("exit", "3", stdout=True, stderr=True))
    found = await answers(call)
    assert [answer.WhichOneof("output") for answer in found] == ["stdout", "stderr", "status"]
    assert (found[0].stdout, found[1].stderr) == (b"out\n", b"err\n")
    assert found[2].status.details.causes[0].message == "3"
    call = Calls(world.served).open("Exec", rpc.CommandOutput)
    await call.write(exec_start("cat", stdin=True, stdout=True))
    for _ in range(20):
        await call.write(rpc_core_v1.PodExecRequest(stdin=b"x" * 50_000))
    await call.done_writing()
    found = await answers(call)
    assert b"".join(answer.stdout for answer in found) == b"x" * 1_000_000
    assert found[-1].status.status == "Success"
    await world.quiet()


async def test_attach_and_sizes_over_grpc(world: World) -> None:
    call = Calls(world.served).open("Attach", rpc.CommandOutput)
    start = {"namespace": "default", "name": "web", "options": {"stdin": True, "stdout": True}}
    await call.write(rpc_core_v1.PodAttachRequest(start=start))
    await call.write(rpc_core_v1.PodAttachRequest(stdin=b"hello"))
    await call.done_writing()
    assert (await answers(call))[0].stdout == b"hello"
    call = Calls(world.served).open("Exec", rpc.CommandOutput)
    await call.write(exec_start("sizes", stdout=True, tty=True))
    for size in ({"width": 80, "height": 24}, {"width": 100, "height": 50}):
        await call.write(rpc_core_v1.PodExecRequest(resize=size))
    assert (await answers(call))[0].stdout == b"[(80, 24), (100, 50)]"


async def test_ports_over_grpc(world: World) -> None:
    """Several connections at once, one refused, one closed by the pod: the others go on."""
    call = Calls(world.served).open("PortForward", rpc.ConnectionEvent)
    request = rpc_core_v1.PodPortForwardRequest
    await call.write(request(start={"namespace": "default", "name": "web"}))
    for connection, port in ((1, 7), (2, 81), (3, 9), (4, 7), (5, 0), (1, 7)):
        await call.write(request(open={"connection": connection, "port": port}))
    for connection in (1, 4):
        await call.write(request(data={"connection": connection, "data": b"to %d" % connection}))
    await call.write(request(end=1))
    found: dict[int, list[Any]] = {}
    async with asyncio.timeout(DEADLINE_S):
        while sum(map(len, found.values())) < 7:
            answer = await call.read()
            found.setdefault(answer.connection, []).append(answer)
    assert found[2][0].error == "nobody listens on 81"
    assert found[3][0].closed
    assert found[4][0].data == b"to 4"
    assert found[5][0].error == "port 0 must be > 0 and <= 65535"
    said = {answer.WhichOneof("event"): answer for answer in found[1]}
    assert said["error"].error == "connection 1 is open already"
    assert said["data"].data == b"to 1"
    assert said["closed"].closed
    await call.write(request(data={"connection": 4, "data": b"still"}))
    assert (await call.read()).data == b"still"
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    await world.quiet()


@pytest.mark.parametrize(
    ("first", "code", "text"),
    [
        (exec_start("cat", container="x", stdout=True), "INVALID_ARGUMENT", "container x is not valid"),
        (rpc_core_v1.PodExecRequest(stdin=b"x"), "INVALID_ARGUMENT", "must be its start"),
        (
            rpc_core_v1.PodExecRequest(start={"namespace": "default", "name": "none"}),
            "NOT_FOUND",
            'pods "none" not found',
        ),
        (exec_start("cat"), "INTERNAL", "at least 1 of stdin, stdout, stderr"),
    ],
)
async def test_refusals_over_grpc(world: World, first: Any, code: str, text: str) -> None:
    call = Calls(world.served).open("Exec", rpc.CommandOutput)
    await call.write(first)
    with pytest.raises(grpc.aio.AioRpcError, match=text) as refused:
        await answers(call)
    assert refused.value.code().name == code


async def test_create_is_asked_for_over_grpc(world: World) -> None:
    world.authorizer.strict = True
    call = Calls(world.served).open("Exec", rpc.CommandOutput)
    await call.write(exec_start("cat", stdout=True))
    with pytest.raises(grpc.aio.AioRpcError, match='cannot create resource "pods/exec"'):
        await answers(call)


@pytest.mark.parametrize("verb", ["Exec", "PortForward"])
async def test_a_call_that_is_cancelled_leaves_nothing(world: World, verb: str) -> None:
    if verb == "Exec":
        call = Calls(world.served).open("Exec", rpc.CommandOutput)
        await call.write(exec_start("yes", stdin=True, stdout=True))
        await call.read()
    else:
        call = Calls(world.served).open("PortForward", rpc.ConnectionEvent)
        request = rpc_core_v1.PodPortForwardRequest
        await call.write(request(start={"namespace": "default", "name": "web"}))
        await call.write(request(open={"connection": 1, "port": 7}))
        await call.write(request(data={"connection": 1, "data": b"x"}))
        await call.read()
    assert world.node.runtime.open == 1
    call.cancel()
    await world.quiet()
