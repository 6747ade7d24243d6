"""Exec, Attach and PortForward over gRPC: the same streams as over REST, in typed messages.

Ours, upstream has none. The messages and what each field means are in the .proto files.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from apiserver.auth.user import RequestContext
from apiserver.serve import stream_command, stream_ports
from apiserver.serve.stream_command import STDOUT, Input, InputEnd, Resize, Said, Wanted, run_command
from apiserver.serve.stream_ports import FromPod, PortData, PortEnd, PortError, PortForwarder
from apiserver.serve.streams import ATTACH, EXEC, DialFailure, Location, PodStreams
from podyard.api import errors
from podyard.api.types import Message, rpc
from podyard.base import clock
from podyard.base.upgrade import HEAD_S, Idle, Upgraded, UpgradeRefused

Send = Callable[[Message], Awaitable[None]]
# (context, start, the other requests, send)
DuplexCall = Callable[[RequestContext, Any, AsyncIterator[Any], Send], Awaitable[None]]


async def first_of(requests: AsyncIterator[Any]) -> Any:
    """The start of a stream.

    Raises:
        BadRequest: it does not come first, or not within half a minute.
    """
    try:
        async with clock.real_timeout(HEAD_S):
            request = await anext(aiter(requests), None)
    except TimeoutError:
        request = None
    if request is None or request.WhichOneof("input") != "start":
        raise errors.BadRequest("the first message of the stream must be its start")
    return request.start


class StreamCalls:
    """The calls by their gRPC verbs.

    Args:
        streams: finds and dials kubelets.
    """

    def __init__(self, streams: PodStreams) -> None:
        self._streams = streams
        self.table: Mapping[str, tuple[type[Message], DuplexCall]] = {
            "Exec": (rpc.CommandOutput, self._exec),
            "Attach": (rpc.CommandOutput, self._attach),
            "PortForward": (rpc.ConnectionEvent, self._forward),
        }

    async def _exec(
        self, context: RequestContext, start: Any, requests: AsyncIterator[Any], send: Send
    ) -> None:
        await self._command(EXEC, context, start, requests, send)

    async def _attach(
        self, context: RequestContext, start: Any, requests: AsyncIterator[Any], send: Send
    ) -> None:
        await self._command(ATTACH, context, start, requests, send)

    async def _command(
        self, action: str, context: RequestContext, start: Any, requests: AsyncIterator[Any], send: Send
    ) -> None:
        location = await self._streams.locate_command(
            context, start.namespace, start.name, action, start.options
        )
        upgraded = await self._connect(location, stream_command.UPGRADE_FIELDS)

        async def show(channel: int, data: bytes) -> None:
            if channel == STDOUT:
                await send(rpc.CommandOutput(stdout=data))
            else:
                await send(rpc.CommandOutput(stderr=data))

        status = await run_command(upgraded, Wanted.of(start.options), _said(requests), show)
        await send(rpc.CommandOutput(status=status))

    async def _forward(
        self, context: RequestContext, start: Any, requests: AsyncIterator[Any], send: Send
    ) -> None:
        location = await self._streams.locate_ports(context, start.namespace, start.name, ())
        forwarder = PortForwarder(await self._connect(location, stream_ports.UPGRADE_FIELDS))

        async def listen(idle: Idle) -> None:
            async for request in requests:
                idle.touch()
                match request.WhichOneof("input"):
                    case "open":
                        await _open(forwarder, request.open, send)
                    case "data":
                        await forwarder.send(request.data.connection, request.data.data)
                    case "end":
                        await forwarder.send(request.end, b"", last=True)

        async def show(item: FromPod) -> bool:
            await send(_event(item))
            return True

        await stream_ports.forward(forwarder, listen, show)

    async def _connect(self, location: Location, fields: Sequence[tuple[str, str]]) -> Upgraded:
        try:
            return await self._streams.connect(location, fields)
        except UpgradeRefused as refused:
            raise errors.InternalError.of(f"unable to upgrade connection: {refused.text}") from None
        except DialFailure as failure:
            raise errors.InternalError.of(f"error dialing backend: {failure}") from None


async def _said(requests: AsyncIterator[Any]) -> AsyncIterator[Said]:
    async for request in requests:
        match request.WhichOneof("input"):
            case "stdin":
                yield Input(request.stdin)
            case "resize":
                yield Resize(request.resize.width, request.resize.height)
    yield InputEnd()


async def _open(forwarder: PortForwarder, wanted: rpc.ConnectionOpen, send: Send) -> None:
    if not 0 < wanted.port < 65536:
        text = f"port {wanted.port} must be > 0 and <= 65535"
        await send(rpc.ConnectionEvent(connection=wanted.connection, error=text))
        return
    try:
        await forwarder.open(wanted.connection, wanted.port)
    except ValueError as error:
        await send(rpc.ConnectionEvent(connection=wanted.connection, error=str(error)))


def _event(item: FromPod) -> rpc.ConnectionEvent:
    match item:
        case PortData(connection, data):
            return rpc.ConnectionEvent(connection=connection, data=data)
        case PortError(connection, text):
            return rpc.ConnectionEvent(connection=connection, error=text)
        case PortEnd(connection):
            return rpc.ConnectionEvent(connection=connection, closed=True)
