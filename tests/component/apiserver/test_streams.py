"""Exec, attach and port-forward through the real API server and the real kubelet's server.

Every protocol that clients use, errors before the upgrade, and above all the ends: whoever goes at
whatever moment, no connection and no task is left.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest

from kubelet.runtime.base import EXITED
from podyard.api.types import Node as NodeObject
from podyard.base import upgrade
from podyard.base.spdy_connection import SpdyConnection
from podyard.base.spdy_session import Ended, Received, Replied, Session, WasReset
from tests.component.apiserver.served import Certificates
from tests.component.apiserver.stream_world import (
    BASE64,
    DEADLINE_S,
    EXEC,
    FORWARD,
    OLD,
    V4,
    V5,
    World,
    carrying,
    update_status,
)


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
                case WasReset(stream_id) if ids[stream_id] == "error":
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


async def test_a_command_that_has_said_all_leaves_the_closing_to_the_client(
    world: World, spdy: Spdy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that reads late throws away what it has not handed out when the connection ends."""
    for name in ("_QUIET_S", "_CLOSE_S"):
        monkeypatch.setattr(upgrade, name, 0.01)
    upgraded = await spdy.ask(url_of(EXEC, "exit", "3", stdout=1, stderr=1))
    connection = SpdyConnection(upgraded.reader, upgraded.writer, client=True)
    going = {await connection.open({"streamType": name}) for name in ("error", "stdout", "stderr")}
    events = connection.events()
    async with asyncio.timeout(DEADLINE_S):
        while going:
            match await anext(events):
                case Ended(stream_id) | WasReset(stream_id):
                    going.discard(stream_id)
    # Many times as long as the server would wait for a client that is still sending.
    end = asyncio.ensure_future(upgraded.reader.read())
    await asyncio.wait([end], timeout=0.3)
    assert not end.done()
    await upgrade.close(upgraded.writer)
    await end
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
    await world.opened()
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


@pytest.mark.parametrize(
    ("offered", "chosen"), [((V5, V4), V4), ((V5, BASE64), BASE64), ((), None)], ids=["v4", "base64", "none"]
)
async def test_ports_over_the_old_websocket_protocol(
    world: World, offered: tuple[str, ...], chosen: str | None
) -> None:
    """Also for a client that names no protocol: it gets the binary one."""
    url = url_of(FORWARD, ports="7,81")
    async with world.served.session.ws_connect(url, protocols=offered) as socket:
        assert socket.protocol == chosen
        found: dict[int, bytes] = {}
        await send(socket, chosen or "", 0, b"ping")
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
