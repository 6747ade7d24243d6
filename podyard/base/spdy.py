"""SPDY/3.1 frames as bytes: a reader and a writer, no I/O.

Kubernetes carries exec, attach and port-forward over SPDY/3.1: several streams in one upgraded
connection. The API server speaks it to kubelets; `spdy_session` keeps the streams' states.

Flow-control windows are read and not acted upon. Differs from the protocol's paper: no peer that
Kubernetes has ever sends a window update or obeys one, so the pace is that of the connection
itself, and who waited for an update would wait for ever.

Source: draft-mbelshe-httpbis-spdy-00 and its SPDY/3 dictionary.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

VERSION = 3
# A control frame holds a few headers; more is nothing that a peer of ours sends.
MAX_CONTROL_BYTES = 64 * 1024
MAX_HEADER_BYTES = 256 * 1024
MAX_DATA_BYTES = (1 << 24) - 1

# Status codes of RST_STREAM.
PROTOCOL_ERROR = 1
INVALID_STREAM = 2
REFUSED_STREAM = 3
CANCEL = 5

_FIN = 0x01
_HEAD = struct.Struct(">II")
_LENGTH = struct.Struct(">I")
_ID_MASK = 0x7FFFFFFF
_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges "
    "age allow authorization cache-control connection content-base content-encoding content-language "
    "content-length content-location content-md5 content-range content-type date etag expect expires from "
    "host if-match if-modified-since if-none-match if-range if-unmodified-since last-modified location "
    "max-forwards pragma proxy-authenticate proxy-authorization range referer retry-after server te trailer "
    "transfer-encoding upgrade user-agent vary via warning www-authenticate method get status 200_OK version "
    "HTTP/1.1 url public set-cookie keep-alive origin"
)
_CODES = (
    "100 101 201 202 205 206 300 302 303 304 305 306 307 402 405 406 407 408 409 410 411 412 413 414 415 416 "
    "417 502 504 505"
)
_PHRASES = (
    "203 Non-Authoritative Information,204 No Content,301 Moved Permanently,400 Bad Request,"
    "401 Unauthorized,403 Forbidden,404 Not Found,500 Internal Server Error,501 Not Implemented,"
    "503 Service Unavailable"
)
_REST = (
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,"
    "text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _dictionary() -> bytes:
    words = [word.replace("_", " ").encode() for word in _WORDS.split(" ")]
    head = b"".join(_LENGTH.pack(len(word)) + word for word in words)
    return head + _CODES.replace(" ", "").encode() + _PHRASES.replace(",", "").encode() + _REST.encode()


# What both sides' header compression begins with.
DICTIONARY = _dictionary()


class ProtocolError(Exception):
    """The peer broke the protocol: its connection is of no further use."""


@dataclass(frozen=True, slots=True)
class SynStream:
    """Opens a stream. Header names are in lower case."""

    stream_id: int
    headers: Mapping[str, str]
    fin: bool = False
    priority: int = 0


@dataclass(frozen=True, slots=True)
class SynReply:
    """Accepts a stream."""

    stream_id: int
    headers: Mapping[str, str] = field(default_factory=dict)
    fin: bool = False


@dataclass(frozen=True, slots=True)
class Headers:
    """More headers of a stream."""

    stream_id: int
    headers: Mapping[str, str]
    fin: bool = False


@dataclass(frozen=True, slots=True)
class RstStream:
    """Ends a stream in both directions."""

    stream_id: int
    status: int


@dataclass(frozen=True, slots=True)
class Settings:
    """Number of a setting -> its value."""

    values: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Ping:
    """Echoed by the side that did not begin it: clients' numbers are odd."""

    number: int


@dataclass(frozen=True, slots=True)
class GoAway:
    """No new streams."""

    last_stream_id: int
    status: int = 0


@dataclass(frozen=True, slots=True)
class WindowUpdate:
    """How many more bytes of a stream its receiver takes."""

    stream_id: int
    delta: int


@dataclass(frozen=True, slots=True)
class Data:
    """Bytes of a stream; a frame may be handed out in several parts, the last one with its `fin`."""

    stream_id: int
    payload: bytes
    fin: bool = False


Frame = SynStream | SynReply | Headers | RstStream | Settings | Ping | GoAway | WindowUpdate | Data


class FrameWriter:
    """Frames to bytes; keeps the state of one direction's header compression, so order matters."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(wbits=15, zdict=DICTIONARY)

    def encode(self, frame: Frame) -> bytes:
        """The bytes of one frame.

        Raises:
            ValueError: more data or headers than a frame holds.
        """
        match frame:
            case Data(stream_id, payload, fin):
                if len(payload) > MAX_DATA_BYTES:
                    raise ValueError("too much data for one frame")
                return _HEAD.pack(stream_id, _flags(fin) | len(payload)) + payload
            case SynStream(stream_id, headers, fin, priority):
                fixed = struct.pack(">IIBB", stream_id, 0, priority << 5, 0)
                return _control(1, fixed + self._block(headers), fin=fin)
            case SynReply(stream_id, headers, fin):
                return _control(2, _LENGTH.pack(stream_id) + self._block(headers), fin=fin)
            case RstStream(stream_id, status):
                return _control(3, _HEAD.pack(stream_id, status))
            case Settings(values):
                pairs = b"".join(_HEAD.pack(number, value) for number, value in values.items())
                return _control(4, _LENGTH.pack(len(values)) + pairs)
            case Ping(number):
                return _control(6, _LENGTH.pack(number))
            case GoAway(last, status):
                return _control(7, _HEAD.pack(last, status))
            case Headers(stream_id, headers, fin):
                return _control(8, _LENGTH.pack(stream_id) + self._block(headers), fin=fin)
            case WindowUpdate(stream_id, delta):
                return _control(9, _HEAD.pack(stream_id, delta))

    def _block(self, headers: Mapping[str, str]) -> bytes:
        plain = _LENGTH.pack(len(headers))
        for name, value in headers.items():
            for text in (name.lower().encode(), value.encode()):
                plain += _LENGTH.pack(len(text)) + text
        if len(plain) > MAX_HEADER_BYTES:
            raise ValueError("too many headers for one frame")
        return self._deflate.compress(plain) + self._deflate.flush(zlib.Z_SYNC_FLUSH)


class FrameReader:
    """Bytes to frames, however the bytes are cut.

    It holds at most one control frame: data is handed out as it comes.
    """

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=15, zdict=DICTIONARY)
        self._buffer = bytearray()
        # Of the data frame whose payload is being read.
        self._stream_id = 0
        self._fin = False
        self._left = 0

    def feed(self, data: bytes) -> list[Frame]:
        """The frames, and parts of data frames, that are complete with these bytes.

        Raises:
            ProtocolError: this is not SPDY/3, or more than the bounds allow.
        """
        self._buffer += data
        frames: list[Frame] = []
        while True:
            frame = self._payload() if self._left else self._frame()
            if frame is None:
                return frames
            if frame is not _SKIPPED:
                frames.append(frame)

    def _payload(self) -> Frame | None:
        if not self._buffer:
            return None
        part = bytes(self._buffer[: self._left])
        del self._buffer[: len(part)]
        self._left -= len(part)
        return Data(self._stream_id, part, self._fin and not self._left)

    def _frame(self) -> Frame | None:
        if len(self._buffer) < _HEAD.size:
            return None
        first, second = _HEAD.unpack_from(self._buffer)
        fin, length = bool(second >> 24 & _FIN), second & 0xFFFFFF
        if not first >> 31:
            del self._buffer[: _HEAD.size]
            self._stream_id, self._fin, self._left = first, fin, length
            return _SKIPPED if length else Data(first, b"", fin)
        if first >> 16 & 0x7FFF != VERSION:
            raise ProtocolError(f"frame of version {first >> 16 & 0x7FFF}")
        if length > MAX_CONTROL_BYTES:
            raise ProtocolError(f"control frame of {length} bytes")
        if len(self._buffer) < _HEAD.size + length:
            return None
        body = bytes(self._buffer[_HEAD.size : _HEAD.size + length])
        del self._buffer[: _HEAD.size + length]
        try:
            return self._control(first & 0xFFFF, body, fin=fin)
        except struct.error:
            raise ProtocolError("control frame too short") from None

    def _control(self, kind: int, body: bytes, *, fin: bool) -> Frame:
        if kind == 1:
            stream_id, _, priority = struct.unpack_from(">IIB", body)
            return SynStream(stream_id & _ID_MASK, self._headers(body[10:]), fin, priority >> 5)
        if kind in (2, 8):
            stream_id = _LENGTH.unpack_from(body)[0] & _ID_MASK
            headers = self._headers(body[4:])
            return SynReply(stream_id, headers, fin) if kind == 2 else Headers(stream_id, headers, fin)
        if kind == 4:
            count = _LENGTH.unpack_from(body)[0]
            if len(body) != 4 + 8 * count:
                raise ProtocolError("settings of another length than they say")
            pairs = struct.iter_unpack(">II", body[4:])
            return Settings({number & 0xFFFFFF: value for number, value in pairs})
        if kind == 6:
            return Ping(_LENGTH.unpack_from(body)[0])
        if kind == 3:
            return RstStream(*_masked(body))
        if kind == 7:
            return GoAway(*_masked(body))
        if kind == 9:
            stream_id, delta = _masked(body)
            return WindowUpdate(stream_id, delta & _ID_MASK)
        return _SKIPPED  # a kind that this version does not know is passed over

    def _headers(self, block: bytes) -> dict[str, str]:
        try:
            plain = self._inflate.decompress(block, MAX_HEADER_BYTES)
        except zlib.error as error:
            raise ProtocolError(f"headers: {error}") from None
        if self._inflate.unconsumed_tail:
            raise ProtocolError("too many headers")
        texts: list[str] = []
        count, at = _LENGTH.unpack_from(plain)[0], _LENGTH.size
        while at < len(plain):
            size = _LENGTH.unpack_from(plain, at)[0]
            at += _LENGTH.size
            if at + size > len(plain):
                raise ProtocolError("a header longer than its block")
            texts.append(plain[at : at + size].decode(errors="replace"))
            at += size
        if len(texts) != 2 * count:
            raise ProtocolError("another number of headers than said")
        return dict(zip(texts[::2], texts[1::2], strict=True))


# Bytes that were read and are no frame for anybody.
_SKIPPED: Frame = Settings({})


def _masked(body: bytes) -> tuple[int, int]:
    first, second = _HEAD.unpack_from(body)
    return first & _ID_MASK, second


def _flags(fin: bool) -> int:
    return (_FIN if fin else 0) << 24


def _control(kind: int, body: bytes, *, fin: bool = False) -> bytes:
    if len(body) > MAX_CONTROL_BYTES:
        raise ValueError("control frame too long")
    return _HEAD.pack(1 << 31 | VERSION << 16 | kind, _flags(fin) | len(body)) + body
