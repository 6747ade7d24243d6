"""One exec or attach on a kubelet: its streams over SPDY, and how both directions are carried.

WebSocket and gRPC clients differ in how they say things; what happens to it is here. The kubelet is
always spoken to in `v4.channel.k8s.io`: one SPDY stream for each of error, stdin, stdout, stderr and
resize, the exit status as a Status on the error stream.

Counterpart: client-go `tools/remotecommand`, apiserver `util/proxy` (StreamTranslatorHandler).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

import orjson

from podyard.api import codec, errors
from podyard.api.errors import ApiError
from podyard.api.types import Status, StatusCause
from podyard.base import upgrade
from podyard.base.run import Background
from podyard.base.spdy import REFUSED_STREAM, ProtocolError
from podyard.base.spdy_connection import SpdyConnection
from podyard.base.spdy_session import Ended, Opened, Received, Replied, WasReset
from podyard.base.upgrade import Idle, Upgraded

STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
_STREAM_TYPES = {ERROR: "error", STDIN: "stdin", STDOUT: "stdout", STDERR: "stderr", RESIZE: "resize"}
PROTOCOL = "v4.channel.k8s.io"
UPGRADE_FIELDS = (
    ("Connection", "Upgrade"),
    ("Upgrade", "SPDY/3.1"),
    ("X-Stream-Protocol-Version", PROTOCOL),
)
NON_ZERO_EXIT = "NonZeroExitCode"
EXIT_CODE = "ExitCode"
# A Status is a few hundred bytes; a longer one is not read to its end.
_MAX_STATUS_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which streams a client asked for."""

    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool

    @classmethod
    def of(cls, options: object) -> Wanted:
        """From PodExecOptions or PodAttachOptions; a terminal has no stderr of its own."""
        given = {name: bool(getattr(options, name)) for name in ("stdin", "stdout", "stderr", "tty")}
        return cls(given["stdin"], given["stdout"], given["stderr"] and not given["tty"], given["tty"])

    @property
    def channels(self) -> list[int]:
        """The streams in the order in which they are opened."""
        flags = {STDIN: self.stdin, STDOUT: self.stdout, STDERR: self.stderr, RESIZE: self.tty}
        return [ERROR, *(channel for channel, asked in flags.items() if asked)]

    @property
    def first_writable(self) -> int:
        """The lowest channel on which the client hears something."""
        return STDOUT if self.stdout else STDERR if self.stderr else ERROR


@dataclass(frozen=True, slots=True)
class Input:
    """Bytes for stdin."""

    data: bytes


@dataclass(frozen=True, slots=True)
class InputEnd:
    """No more stdin."""


@dataclass(frozen=True, slots=True)
class Resize:
    """The terminal's size now, in characters."""

    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Gone:
    """The client has left: what it started hears the end of its input."""


Said = Input | InputEnd | Resize | Gone


class RemoteCommand:
    """The streams of one command."""

    def __init__(self, upgraded: Upgraded, wanted: Wanted) -> None:
        self._writer = upgraded.writer
        self._spdy = SpdyConnection(upgraded.reader, upgraded.writer, client=True)
        self._wanted = wanted
        self._ids: dict[int, int] = {}
        self._waiting: set[int] = set()
        # What is sent on a stream before the peer has accepted it, the peer drops.
        self._accepted = asyncio.Event()
        self._raw_status = b""
        self._status_ended = False

    async def output(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """What the command prints, by channel, until its status is there or the connection ends.

        Raises:
            ConnectionError: the kubelet is gone before anything began.
        """
        for channel in self._wanted.channels:
            self._ids[channel] = await self._spdy.open({"streamtype": _STREAM_TYPES[channel]})
        channels = {stream_id: channel for channel, stream_id in self._ids.items()}
        self._waiting = set(channels)
        try:
            async for event in self._spdy.events():
                match event:
                    case Opened(stream_id):
                        await self._spdy.reset(stream_id, REFUSED_STREAM)
                    case Replied(stream_id):
                        self._waiting.discard(stream_id)
                        if not self._waiting:
                            self._accepted.set()
                    case Received(stream_id, data) if channels[stream_id] == ERROR:
                        self._raw_status = (self._raw_status + data)[:_MAX_STATUS_BYTES]
                    case Received(stream_id, data):
                        yield channels[stream_id], data
                    case Ended(stream_id) | WasReset(stream_id) if channels[stream_id] == ERROR:
                        # All output is written before the status is.
                        self._status_ended = True
                        return
        except ProtocolError:
            return
        finally:
            self._accepted.set()

    def status(self) -> Status:
        """How the command ended; of a command that was cut off, that."""
        if not self._raw_status and not self._status_ended:
            # Differs from upstream, which calls this a success.
            return errors.InternalError.of("error reading from error stream: unexpected EOF").to_status()
        return final_status(self._raw_status)

    async def say(self, said: Said) -> None:
        """Passes on what the client said, waits until it is taken; what nobody asked for goes nowhere.

        Raises:
            ConnectionError: the command's side is gone.
        """
        await self._accepted.wait()
        match said:
            case Input(data) if STDIN in self._ids:
                await self._spdy.send(self._ids[STDIN], data)
            case InputEnd() if STDIN in self._ids:
                await self._spdy.send(self._ids[STDIN], b"", fin=True)
            case Resize(width, height) if RESIZE in self._ids:
                size = orjson.dumps({"Width": width, "Height": height}) + b"\n"
                await self._spdy.send(self._ids[RESIZE], size)
            case Gone():
                self._writer.transport.abort()

    async def close(self) -> None:
        await upgrade.close(self._writer)


async def run_command(
    upgraded: Upgraded,
    wanted: Wanted,
    said: AsyncIterator[Said],
    show: Callable[[int, bytes], Awaitable[None]],
) -> Status:
    """Carries a command until it ends, the client goes or four idle hours have passed.

    Each direction holds one piece at a time: a client that does not read stops the command, a
    command that does not read stops the client.

    Args:
        said: what the client says, to its end or to `Gone`.
        show: sends a piece of output to the client; a ConnectionError means that it has left.

    Returns:
        How the command ended.
    """
    command, idle = RemoteCommand(upgraded, wanted), Idle()

    async def listen() -> None:
        try:
            async for item in said:
                idle.touch()
                await command.say(item)
        except OSError:
            pass  # the command has ended: its status is on the way

    try:
        async with idle.scope, Background() as background:
            background.start(listen())
            try:
                async with aclosing(command.output()) as output:
                    async for channel, data in output:
                        idle.touch()
                        await show(channel, data)
            except ConnectionError:
                pass
    except TimeoutError:
        return errors.Timeout.of("the stream was idle for too long").to_status()
    finally:
        await command.close()
    return command.status()


def final_status(raw: bytes) -> Status:
    """The Status for the client, from what the error stream brought.

    Source: client-go errorDecoderV4, and codeExitToStatusError of apiserver's stream translator.
    """
    if not raw:
        return Status(status="Success")
    try:
        found = codec.decode_json(raw, Status).message
        if found.status == "Success":
            return Status(status="Success")
        if found.reason == NON_ZERO_EXIT:
            return exit_status(_exit_code(found))
        return errors.InternalError.of(found.message).to_status()
    except (ValueError, ApiError):
        text = raw.decode(errors="replace")
        return errors.InternalError.of(f"error stream protocol error: {text}").to_status()


def exit_status(code: int) -> Status:
    """A command's end with another code than 0."""
    status = Status(
        status="Failure",
        reason=NON_ZERO_EXIT,
        message=f"command terminated with non-zero exit code: command terminated with exit code {code}",
    )
    status.metadata.SetInParent()
    status.details.causes.append(StatusCause(reason=EXIT_CODE, message=str(code)))
    return status


def _exit_code(status: Status) -> int:
    for cause in status.details.causes:
        if cause.reason == EXIT_CODE:
            return int(cause.message)
    raise ValueError("no exit code")
