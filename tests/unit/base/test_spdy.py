"""SPDY/3.1: frames survive any cut of the bytes, both roles agree, and a peer that misbehaves is bounded."""

from __future__ import annotations

import itertools
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podyard.base import spdy
from podyard.base.spdy import (
    Data,
    Frame,
    FrameReader,
    FrameWriter,
    GoAway,
    Headers,
    Ping,
    ProtocolError,
    RstStream,
    Settings,
    SynReply,
    SynStream,
    WindowUpdate,
)
from podyard.base.spdy_session import (
    CHUNK_BYTES,
    MAX_STREAMS,
    Ended,
    Event,
    Opened,
    Received,
    Replied,
    Session,
    WasReset,
    WentAway,
)

stream_ids = st.integers(1, 2**31 - 1)
headers = st.dictionaries(
    st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=12), st.text(max_size=20), max_size=4
)
frames = st.one_of(
    st.builds(SynStream, stream_ids, headers, st.booleans(), st.integers(0, 7)),
    st.builds(SynReply, stream_ids, headers, st.booleans()),
    st.builds(Headers, stream_ids, headers, st.booleans()),
    st.builds(RstStream, stream_ids, st.integers(1, 11)),
    st.builds(Settings, st.dictionaries(st.integers(1, 8), st.integers(0, 2**32 - 1), max_size=3)),
    st.builds(Ping, st.integers(0, 2**32 - 1)),
    st.builds(GoAway, stream_ids, st.integers(0, 2)),
    st.builds(WindowUpdate, stream_ids, st.integers(1, 2**31 - 1)),
    st.builds(Data, stream_ids, st.binary(max_size=200), st.booleans()),
)


def joined(found: list[Frame]) -> list[Frame]:
    """The parts of each data frame as one again; frames that hold nothing and end nothing left out."""
    whole: list[Frame] = []
    for frame in found:
        last = whole[-1] if whole else None
        if (
            isinstance(frame, Data)
            and isinstance(last, Data)
            and not last.fin
            and frame.stream_id == last.stream_id
        ):
            whole[-1] = Data(frame.stream_id, last.payload + frame.payload, frame.fin)
            continue
        whole.append(frame)
    return [frame for frame in whole if not isinstance(frame, Data) or frame.payload or frame.fin]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def test_the_dictionary_is_the_one_of_the_paper():
    # The checksum that a zlib stream names its dictionary by.
    assert zlib.adler32(spdy.DICTIONARY) == 0xE3C6A7C2


@given(st.lists(frames, max_size=8), st.lists(st.integers(0, 10**6), max_size=12))
def test_any_cut_of_the_bytes_gives_the_same_frames(sent, places):
    writer, reader = FrameWriter(), FrameReader()
    data = b"".join(writer.encode(frame) for frame in sent)
    found = [frame for part in cut(data, places) for frame in reader.feed(part)]
    assert joined(found) == joined(sent)


def test_a_frame_is_what_the_paper_says():
    assert FrameWriter().encode(Ping(7)) == bytes.fromhex("80030006 00000004 00000007")
    assert FrameWriter().encode(Data(5, b"ab", fin=True)) == bytes.fromhex("00000005 01000002") + b"ab"
    opening = FrameWriter().encode(SynStream(1, {"streamType": "stdin"}))
    assert opening[:8] == bytes.fromhex("80030001 000000") + bytes((len(opening) - 8,))
    inflate = zlib.decompressobj(zdict=spdy.DICTIONARY)
    plain = inflate.decompress(opening[18:])
    assert plain == struct.pack(">II", 1, 10) + b"streamtype" + struct.pack(">I", 5) + b"stdin"


def test_data_is_handed_out_before_its_frame_is_complete():
    reader = FrameReader()
    assert reader.feed(struct.pack(">II", 3, 1 << 24 | 100) + b"x" * 40) == [Data(3, b"x" * 40)]
    assert reader.feed(b"y" * 60) == [Data(3, b"y" * 60, fin=True)]


def bomb() -> bytes:
    deflate = zlib.compressobj(zdict=spdy.DICTIONARY)
    plain = struct.pack(">II", 1, 10**9) + b"\0" * (spdy.MAX_HEADER_BYTES * 2)
    block = deflate.compress(plain) + deflate.flush(zlib.Z_SYNC_FLUSH)
    return struct.pack(">III", 0x80030002, 4 + len(block), 1) + block


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">II", 0x80020006, 4) + b"\0\0\0\1", id="another version"),
        pytest.param(struct.pack(">II", 0x80030001, 0xFFFFFF), id="a control frame without end"),
        pytest.param(struct.pack(">II", 0x80030003, 4) + b"\0\0\0\1", id="a frame too short"),
        pytest.param(struct.pack(">III", 0x80030002, 8, 1) + b"????", id="headers that are no zlib"),
        pytest.param(struct.pack(">III", 0x80030004, 4, 9), id="settings that are not there"),
        pytest.param(bomb(), id="headers that grow without end"),
    ],
)
def test_what_is_no_spdy_is_refused(data):
    with pytest.raises(ProtocolError):
        FrameReader().feed(data)


@given(st.binary(max_size=400))
def test_random_bytes_are_frames_or_refused(data):
    reader = FrameReader()
    try:
        reader.feed(data)
    except ProtocolError:
        pass


class Pair:
    """Two sessions, each hearing what the other sends."""

    def __init__(self) -> None:
        self.client = Session(client=True)
        self.server = Session(client=False)

    def to_server(self) -> list[Event]:
        return self.server.receive(self.client.take_outgoing())

    def to_client(self) -> list[Event]:
        return self.client.receive(self.server.take_outgoing())


def test_a_stream_from_its_opening_to_its_end():
    pair = Pair()
    stream = pair.client.open({"streamtype": "stdin"})
    assert pair.to_server() == [Opened(stream, {"streamtype": "stdin"})]
    pair.server.reply(stream)
    assert pair.to_client() == [Replied(stream)]
    pair.client.send(stream, b"in", fin=True)
    assert pair.to_server() == [Received(stream, b"in"), Ended(stream)]
    pair.server.send(stream, b"out")
    assert pair.to_client() == [Received(stream, b"out")]
    assert pair.client.open_streams == pair.server.open_streams == 1
    pair.server.send(stream, b"", fin=True)
    assert pair.to_client() == [Ended(stream)]
    assert pair.client.open_streams == pair.server.open_streams == 0


def test_nothing_is_sent_on_a_stream_that_has_ended():
    pair = Pair()
    stream = pair.client.open({}, fin=True)
    pair.client.send(stream, b"late")
    assert pair.to_server() == [Opened(stream, {}), Ended(stream)]
    pair.server.reset(stream, spdy.CANCEL)
    assert pair.to_client() == [WasReset(stream, spdy.CANCEL)]
    pair.server.send(stream, b"later")
    assert pair.to_client() == []


def test_what_crosses_a_reset_is_passed_over():
    pair = Pair()
    stream = pair.client.open({})
    pair.to_server()
    pair.client.reset(stream, spdy.CANCEL)
    pair.server.send(stream, b"crossing", fin=True)
    assert pair.to_client() == []
    assert pair.to_server() == [WasReset(stream, spdy.CANCEL)]


def test_pings_are_answered_by_the_other_side_alone():
    writer, server, client = FrameWriter(), Session(client=False), Session(client=True)
    server.receive(writer.encode(Ping(1)) + writer.encode(Ping(2)))
    assert server.take_outgoing() == writer.encode(Ping(1))
    client.receive(writer.encode(Ping(1)) + writer.encode(Ping(2)))
    assert client.take_outgoing() == writer.encode(Ping(2))


def test_a_peer_opens_no_more_streams_than_the_bound():
    pair = Pair()
    for _ in range(MAX_STREAMS + 3):
        pair.client.open({})
    assert len(pair.to_server()) == MAX_STREAMS
    assert len(pair.to_client()) == 3
    assert pair.server.open_streams == MAX_STREAMS


@pytest.mark.parametrize("stream_id", [2, 0])
def test_a_stream_of_the_wrong_side_ends_the_connection(stream_id):
    with pytest.raises(ProtocolError):
        Session(client=False).receive(FrameWriter().encode(SynStream(stream_id, {})))


def test_a_stream_is_opened_once():
    writer, server = FrameWriter(), Session(client=False)
    server.receive(writer.encode(SynStream(3, {})))
    with pytest.raises(ProtocolError):
        server.receive(writer.encode(SynStream(3, {})))


def test_going_away_is_told():
    pair = Pair()
    pair.server.go_away()
    assert pair.to_client() == [WentAway()]


payloads = st.lists(
    st.tuples(st.integers(0, 2), st.binary(max_size=CHUNK_BYTES * 2 + 1), st.booleans()), max_size=6
)


@given(payloads, payloads, st.lists(st.integers(0, 10**6), max_size=10))
def test_each_stream_brings_its_bytes_in_order(up, down, places):
    pair = Pair()
    streams = [pair.client.open({"number": str(number)}) for number in range(3)]
    pair.to_server()
    for sender, receiver, said in ((pair.client, pair.server, up), (pair.server, pair.client, down)):
        wanted: dict[int, bytes] = dict.fromkeys(streams, b"")
        ended: set[int] = set()
        for number, data, fin in said:
            stream = streams[number]
            sender.send(stream, data, fin=fin)
            if stream not in ended:
                wanted[stream] += data
            if fin:
                ended.add(stream)
        found: dict[int, bytes] = dict.fromkeys(streams, b"")
        over: set[int] = set()
        for part in cut(sender.take_outgoing(), places):
            for event in receiver.receive(part):
                match event:
                    case Received(stream, data):
                        assert stream not in over
                        found[stream] += data
                    case Ended(stream):
                        over.add(stream)
        assert (found, over) == (wanted, ended)
