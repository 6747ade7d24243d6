"""What a third party sees of a SPDY connection: whole once the server has ended every stream, in any way."""

from __future__ import annotations

import pytest

from podyard.base.spdy import CANCEL
from podyard.base.spdy_follow import Follower
from podyard.base.spdy_session import Session


class Overheard:
    """Two sides, and a follower between them."""

    def __init__(self) -> None:
        self.client = Session(client=True)
        self.server = Session(client=False)
        self.follower = Follower()

    def pass_on(self) -> None:
        """All that either side has to say."""
        while asked := self.client.take_outgoing():
            self.follower.asked(asked)
            self.server.receive(asked)
        while answered := self.server.take_outgoing():
            self.follower.answered(answered)
            self.client.receive(answered)


@pytest.fixture
def overheard() -> Overheard:
    return Overheard()


def test_nothing_opened_is_nothing_whole(overheard):
    assert not overheard.follower.whole()
    overheard.server.go_away()
    overheard.pass_on()
    assert not overheard.follower.whole()


@pytest.mark.parametrize("ending", ["fin", "reset", "data with fin"])
def test_it_is_whole_when_the_server_has_ended_the_last_stream(overheard, ending):
    streams = [overheard.client.open({"streamtype": name}) for name in ("error", "stdout")]
    overheard.pass_on()
    assert not overheard.follower.whole()
    for position, stream in enumerate(streams):
        if ending == "reset":
            overheard.server.reset(stream, CANCEL)
        else:
            overheard.server.send(stream, b"x" * 100_000 if ending == "data with fin" else b"", fin=True)
        overheard.pass_on()
        assert overheard.follower.whole() == (position == 1)
    overheard.client.open({"streamtype": "one more"})
    overheard.pass_on()
    assert not overheard.follower.whole()


def test_what_the_client_ends_is_not_ended_by_the_server(overheard):
    stream = overheard.client.open({"streamtype": "stdin"}, fin=True)
    overheard.server.reply(stream)
    overheard.pass_on()
    assert not overheard.follower.whole()


@pytest.mark.parametrize("side", ["asked", "answered"])
def test_what_is_no_spdy_is_never_whole(overheard, side):
    stream = overheard.client.open({})
    overheard.server.send(stream, b"", fin=True)
    overheard.pass_on()
    getattr(overheard.follower, side)(b"\xff" * 64)
    overheard.server.reset(stream, CANCEL)
    overheard.pass_on()
    assert not overheard.follower.whole()
