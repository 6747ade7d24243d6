"""A SPDY/3.1 connection over an asyncio stream: `spdy_session` with its I/O.

One reader takes the events, any number of tasks send. Nothing is buffered beyond one read and the
transport's own limit: while an event is dealt with nothing is read, and a send waits until the peer
takes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

from podyard.base.spdy_session import Event, Session

_READ_BYTES = 64 * 1024


class SpdyConnection:
    """Drives one session.

    Args:
        client: whether this side asked for the upgrade.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, client: bool) -> None:
        self._reader = reader
        self._writer = writer
        self._session = Session(client=client)

    async def open(self, headers: Mapping[str, str], *, fin: bool = False) -> int:
        """Opens a stream; with `fin` nothing will be sent on it. Answers its number."""
        stream_id = self._session.open(headers, fin=fin)
        await self._flush()
        return stream_id

    async def reply(self, stream_id: int) -> None:
        """Accepts a stream that the peer opened."""
        self._session.reply(stream_id)
        await self._flush()

    async def send(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        """Sends bytes, with `fin` the last; returns when the transport has room again.

        Raises:
            ConnectionError: the connection is gone.
        """
        self._session.send(stream_id, data, fin=fin)
        await self._flush()

    async def reset(self, stream_id: int, status: int) -> None:
        """Ends a stream in both directions."""
        self._session.reset(stream_id, status)
        await self._flush()

    async def events(self) -> AsyncIterator[Event]:
        """What the peer does, until the connection ends. For one reader.

        Raises:
            ProtocolError: this is not SPDY/3.1.
        """
        while True:
            try:
                data = await self._reader.read(_READ_BYTES)
            except (ConnectionError, TimeoutError):
                return
            if not data:
                return
            for event in self._session.receive(data):
                yield event
            # Pings are answered only after what came before them was dealt with: who floods waits.
            await self._flush()

    async def _flush(self) -> None:
        data = self._session.take_outgoing()
        if data:
            self._writer.write(data)
            await self._writer.drain()
