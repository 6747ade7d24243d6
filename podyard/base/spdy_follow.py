"""What a third party sees of a SPDY/3.1 connection that it carries: which streams have ended.

Whoever joins two connections byte by byte has to know whether a server that closed had said all, or
vanished in the middle: only of a whole conversation may the client take its time to read the rest.
"""

from __future__ import annotations

from podyard.base.spdy import Data, Frame, FrameReader, Headers, ProtocolError, RstStream, SynReply, SynStream


class Follower:
    """Follows both directions, as they pass; what is no SPDY is never whole."""

    def __init__(self) -> None:
        self._asks = FrameReader()
        self._answers = FrameReader()
        self._open: set[int] = set()
        self._any = False
        self._broken = False

    def asked(self, data: bytes) -> None:
        """Bytes of the client."""
        for frame in self._frames(self._asks, data):
            if isinstance(frame, SynStream):
                self._any = True
                self._open.add(frame.stream_id)

    def answered(self, data: bytes) -> None:
        """Bytes of the server."""
        for frame in self._frames(self._answers, data):
            match frame:
                case RstStream(stream_id):
                    self._open.discard(stream_id)
                case Data(stream_id, _, True) | SynReply(stream_id, _, True) | Headers(stream_id, _, True):
                    self._open.discard(stream_id)

    def whole(self) -> bool:
        """Whether the server has ended every stream that the client opened, and there was one."""
        return self._any and not self._open and not self._broken

    def _frames(self, reader: FrameReader, data: bytes) -> list[Frame]:
        if self._broken:
            return []
        try:
            return reader.feed(data)
        except ProtocolError:
            self._broken = True
            return []
