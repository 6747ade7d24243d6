"""HTTP upgrades as bytes: heads, refusals in all framings, and joined connections that end together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from podyard.base import upgrade
from podyard.base.upgrade import Idle, UpgradeRefused, ask_upgrade, parse_head, request_head, splice

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
REQUEST = request_head("POST", "/x?a=1", "host:1", [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1")])


@asynccontextmanager
async def listening(handler: Handler) -> AsyncIterator[int]:
    """A server whose connections all end with the block."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            await handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        for writer in writers:
            writer.transport.abort()
        server.close()
        await server.wait_closed()


def test_a_request_is_its_lines():
    assert REQUEST == (
        b"POST /x?a=1 HTTP/1.1\r\nHost: host:1\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
        b"Content-Length: 0\r\n\r\n"
    )
    with pytest.raises(ValueError, match="line break"):
        request_head("GET", "/", "host", [("X", "a\r\nY: b")])


def test_a_head_has_its_fields_in_order_and_repeated():
    head = parse_head(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\nA: 1\r\na: 2\r\n\r\n")
    assert (head.status, head.fields) == (101, (("upgrade", "SPDY/3.1"), ("a", "1"), ("a", "2")))
    assert (head.get("a"), head.get("b")) == ("1", "")
    with pytest.raises(ValueError, match="malformed"):
        parse_head(b"SSH-2.0\r\n\r\n")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"Content-Length: 2\r\n\r\nno", id="length"),
        pytest.param(b"Content-Length: 9\r\n\r\nno", id="cut off"),
        pytest.param(b"Connection: close\r\n\r\nno", id="to the end"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\n1\r\nn\r\n1;x=y\r\no\r\n0\r\n\r\n", id="chunked"),
    ],
)
async def test_a_refusal_has_its_code_and_body(answer):
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readuntil(b"\r\n\r\n") == REQUEST
        writer.write(b"HTTP/1.1 500 Internal Server Error\r\n" + answer)

    async with listening(refuse) as port:
        with pytest.raises(UpgradeRefused) as refused:
            await ask_upgrade("127.0.0.1", port, REQUEST)
    assert (refused.value.head.status, refused.value.text) == (500, "no")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 101", b"nonsense\r\n\r\n", b"x" * 200_000])
async def test_what_is_no_answer_is_a_connection_error(answer):
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    async with listening(babble) as port:
        with pytest.raises(ConnectionError):
            await ask_upgrade("127.0.0.1", port, REQUEST)


async def test_what_follows_the_head_at_once_is_not_lost():
    async def switch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(upgrade.switching_head([("Upgrade", "x")]) + b"first")

    async with listening(switch) as port:
        upgraded = await ask_upgrade("127.0.0.1", port, REQUEST)
        assert await upgraded.reader.read() == b"first"
        await upgrade.close(upgraded.writer)


async def ends(left: Handler, right: Handler, **options: Any) -> None:
    """Joins a connection to each of two servers."""
    async with listening(left) as first, listening(right) as second:
        pairs = [await asyncio.open_connection("127.0.0.1", port) for port in (first, second)]
        async with asyncio.timeout(10):
            await splice(pairs[0], pairs[1], **options)
        assert all(writer.is_closing() for _, writer in pairs)


async def test_joined_connections_carry_both_ways_and_end_together():
    data = bytes(range(256)) * 4096
    found: list[bytes] = []
    done = asyncio.Event()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while part := await reader.read(10_000):
            writer.write(part)
            await writer.drain()
        done.set()

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        found.append(await reader.readexactly(len(data)))

    await ends(ask, echo)
    assert found == [data]
    await done.wait()


async def test_all_that_was_sent_before_the_end_arrives_at_a_slow_reader():
    data = b"x" * 3_000_000
    found: list[bytes] = []
    arrived = asyncio.Event()

    async def burst(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.2)
        while part := await reader.read(100_000):
            found.append(part)
            await asyncio.sleep(0.002)
        arrived.set()

    async with listening(burst) as first, listening(slow) as second:
        pairs = [await asyncio.open_connection("127.0.0.1", port) for port in (first, second)]
        async with asyncio.timeout(20):
            await splice(pairs[0], pairs[1])
            await arrived.wait()
    assert b"".join(found) == data


async def test_a_client_in_the_middle_of_its_input_still_reads_the_end():
    """As of a command that fails before it has read all: closing at once would reset the connection."""
    found: list[bytes] = []
    arrived = asyncio.Event()

    async def fail(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(10)
        writer.write(b"why")

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(100):
            writer.write(b"x" * 100_000)
            await writer.drain()
        found.append(await reader.read(3))
        arrived.set()

    await ends(flood, fail)
    await arrived.wait()
    assert found == [b"why"]


class Heard:
    """A witness that is told what to say."""

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self.seen = {"asked": b"", "answered": b""}

    def asked(self, data: bytes) -> None:
        self.seen["asked"] += data

    def answered(self, data: bytes) -> None:
        self.seen["answered"] += data

    def whole(self) -> bool:
        return self._whole


@pytest.mark.parametrize("whole", [True, False])
async def test_a_conversation_that_is_whole_is_closed_by_the_client(whole, monkeypatch):
    """A client that hands out what it got may need minutes; one whose server vanished has to know at once."""
    for name in ("_QUIET_S", "_CLOSE_S"):
        monkeypatch.setattr(upgrade, name, 0.01)
    witness = Heard(whole=whole)
    ended: list[bool] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"all " + await reader.readexactly(3))

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"yes")
        assert await reader.readexactly(7) == b"all yes"
        try:
            async with asyncio.timeout(0.3 if whole else 10):
                ended.append(await reader.read() == b"")
        except TimeoutError:
            ended.append(False)

    await ends(ask, answer, witness=witness)
    assert ended == [not whole]
    assert witness.seen == {"asked": b"yes", "answered": b"all yes"}


async def test_a_whole_conversation_that_nobody_closes_ends_when_it_is_idle():
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"all")

    async def stay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    await ends(stay, say, idle_s=0.2, witness=Heard(whole=True))


async def test_an_idle_join_ends():
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    await ends(wait, wait, idle_s=0.1)


async def test_traffic_keeps_a_deadline_away():
    async with asyncio.timeout(10):
        idle = Idle(0.2)
        async with idle.scope:
            for _ in range(6):
                await asyncio.sleep(0.05)
                idle.touch()
        with pytest.raises(TimeoutError):
            async with Idle(0.05).scope:
                await asyncio.Event().wait()
