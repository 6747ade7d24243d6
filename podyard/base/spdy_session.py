"""The streams of one SPDY/3.1 connection, no I/O: bytes in, events out, bytes to send.

Both roles: the API server is the client of kubelets; the server's side is that of a runtime, and
of tests. Pings are answered here. Whoever drives a session sends what `take_outgoing` gives before
it reads on, so neither direction can pile up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from podyard.base.spdy import (
    REFUSED_STREAM,
    Data,
    Frame,
    FrameReader,
    FrameWriter,
    GoAway,
    Headers,
    Ping,
    ProtocolError,
    RstStream,
    SynReply,
    SynStream,
)

MAX_STREAMS = 1000
# As large as the pieces that Go's copies are made of.
CHUNK_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer opened a stream: answer with `reply` or `reset`."""

    stream_id: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Replied:
    """The peer accepted a stream of ours."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class Received:
    """Bytes of a stream."""

    stream_id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """The peer sends nothing more on a stream."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class WasReset:
    """The peer ended a stream in both directions."""

    stream_id: int
    status: int


@dataclass(frozen=True, slots=True)
class WentAway:
    """The peer takes no new streams."""


Event = Opened | Replied | Received | Ended | WasReset | WentAway


@dataclass(slots=True)
class _Stream:
    """Which directions are still open."""

    sends: bool = True
    receives: bool = True


class Session:
    """One side of a connection.

    Args:
        client: the side that asked for the upgrade; its stream numbers are odd.
    """

    def __init__(self, *, client: bool) -> None:
        self._client = client
        self._next_id = 1 if client else 2
        self._last_peer_id = 0
        self._reader = FrameReader()
        self._writer = FrameWriter()
        self._streams: dict[int, _Stream] = {}
        self._outgoing = bytearray()

    @property
    def open_streams(self) -> int:
        """How many streams are open in a direction at least."""
        return len(self._streams)

    def open(self, headers: Mapping[str, str], *, fin: bool = False) -> int:
        """Opens a stream; with `fin` nothing will be sent on it. Answers its number."""
        stream_id, self._next_id = self._next_id, self._next_id + 2
        self._streams[stream_id] = _Stream(sends=not fin)
        self._put(SynStream(stream_id, headers, fin))
        return stream_id

    def reply(self, stream_id: int, headers: Mapping[str, str] | None = None) -> None:
        """Accepts a stream that the peer opened."""
        self._put(SynReply(stream_id, headers or {}))

    def send(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        """Sends bytes; with `fin` they are the last. Nothing happens on a stream that has ended."""
        stream = self._streams.get(stream_id)
        if stream is None or not stream.sends:
            return
        for start in range(0, max(len(data), 1), CHUNK_BYTES):
            chunk = data[start : start + CHUNK_BYTES]
            last = start + CHUNK_BYTES >= len(data)
            if chunk or (fin and last):
                self._put(Data(stream_id, chunk, fin and last))
        if fin:
            stream.sends = False
            self._forget_if_done(stream_id, stream)

    def reset(self, stream_id: int, status: int) -> None:
        """Ends a stream in both directions."""
        if self._streams.pop(stream_id, None) is not None:
            self._put(RstStream(stream_id, status))

    def go_away(self) -> None:
        """Says that no new streams are taken."""
        self._put(GoAway(self._last_peer_id))

    def take_outgoing(self) -> bytes:
        """What is to be sent, once."""
        data = bytes(self._outgoing)
        self._outgoing.clear()
        return data

    def receive(self, data: bytes) -> list[Event]:
        """What the peer's bytes say.

        Raises:
            ProtocolError: the connection is of no further use.
        """
        events: list[Event] = []
        for frame in self._reader.feed(data):
            self._on_frame(frame, events)
        return events

    def _put(self, frame: Frame) -> None:
        self._outgoing += self._writer.encode(frame)

    def _on_frame(self, frame: Frame, events: list[Event]) -> None:
        match frame:
            case Data(stream_id, payload, fin):
                self._on_data(stream_id, payload, events, fin=fin)
            case SynStream(stream_id, headers, fin):
                if self._accepts(stream_id):
                    events.append(Opened(stream_id, headers))
                    self._on_fin(stream_id, events, fin=fin)
            case SynReply(stream_id, _, fin):
                if stream_id in self._streams:
                    events.append(Replied(stream_id))
                    self._on_fin(stream_id, events, fin=fin)
            case Headers(stream_id, _, fin):
                self._on_fin(stream_id, events, fin=fin)
            case RstStream(stream_id, status):
                if self._streams.pop(stream_id, None) is not None:
                    events.append(WasReset(stream_id, status))
            case Ping(number) if (number % 2 == 1) != self._client:
                self._put(frame)
            case GoAway():
                events.append(WentAway())

    def _on_data(self, stream_id: int, payload: bytes, events: list[Event], *, fin: bool) -> None:
        stream = self._streams.get(stream_id)
        if stream is None or not stream.receives:
            return  # it crossed our reset
        if payload:
            events.append(Received(stream_id, payload))
        self._on_fin(stream_id, events, fin=fin)

    def _accepts(self, stream_id: int) -> bool:
        from_peer = (stream_id % 2 == 1) != self._client and stream_id > 0
        if not from_peer or stream_id <= self._last_peer_id:
            raise ProtocolError(f"stream {stream_id} is not the peer's to open")
        self._last_peer_id = stream_id
        if len(self._streams) >= MAX_STREAMS:
            self._put(RstStream(stream_id, REFUSED_STREAM))
            return False
        self._streams[stream_id] = _Stream()
        return True

    def _on_fin(self, stream_id: int, events: list[Event], *, fin: bool) -> None:
        stream = self._streams.get(stream_id)
        if not fin or stream is None or not stream.receives:
            return
        stream.receives = False
        events.append(Ended(stream_id))
        self._forget_if_done(stream_id, stream)

    def _forget_if_done(self, stream_id: int, stream: _Stream) -> None:
        if not stream.sends and not stream.receives:
            self._streams.pop(stream_id, None)
