"""Events go an hour after they were told last, and nothing else does."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from apiserver.core import ApiCore
from apiserver.event_expiry import TTL_S, Told, look
from apiserver.store.memory import MemoryStore
from apiserver.watchcache_events import CachedObject
from podyard.api.types import ConfigMap, Event, Namespace, ObjectMeta
from podyard.base import clock
from podyard.base.run import Background
from podyard.client.client import Client

pytestmark = pytest.mark.virtual

# One look is at most this far from the next.
LATE_S = TTL_S / 10


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    core = ApiCore(MemoryStore())
    async with Background() as background:
        core.start(background)
        await core.cache.wait_ready()
        found = Client(core.transport("tester", "system:masters"), field_manager="tests")
        await found.create(Namespace(metadata=ObjectMeta(name="here")))
        yield found
    await core.close()


def event(name: str) -> Event:
    made = Event(metadata=ObjectMeta(name=name, namespace="here"), reason="Seen", type="Normal")
    made.involvedObject.kind, made.involvedObject.name, made.involvedObject.namespace = "Pod", "web", "here"
    return made


async def names(client: Client) -> list[str]:
    return [found.metadata.name for found in (await client.list(Event, "here")).items]


async def test_an_event_goes_after_an_hour_and_nothing_else_does(client: Client) -> None:
    await client.create(event("old"))
    await client.create(ConfigMap(metadata=ObjectMeta(name="kept", namespace="here")))
    await clock.sleep(TTL_S - 60)
    assert await names(client) == ["old"]
    await client.create(event("new"))
    await clock.sleep(60 + LATE_S)
    assert await names(client) == ["new"]
    await client.get(ConfigMap, "kept", "here")
    await clock.sleep(TTL_S)
    assert await names(client) == []


@pytest.mark.parametrize("how", ["lastTimestamp", "series"])
async def test_an_event_that_is_told_again_stays_an_hour_longer(client: Client, how: str) -> None:
    made = await client.create(event("again"))
    await clock.sleep(TTL_S / 2)
    if how == "series":
        made.series.count = 2
        made.series.lastObservedTime.seconds = int(clock.now_s())
    else:
        getattr(made, how).seconds = int(clock.now_s())
    await client.update(made)
    await clock.sleep(TTL_S - 60)
    assert await names(client) == ["again"]
    await clock.sleep(60 + LATE_S)
    assert await names(client) == []


async def test_a_clock_that_is_ahead_keeps_nothing_for_ever(client: Client) -> None:
    ahead = event("ahead")
    ahead.lastTimestamp.seconds = int(clock.now_s()) + 10**8
    await client.create(ahead)
    await clock.sleep(TTL_S + 2 * LATE_S)
    assert await names(client) == []


def test_what_has_not_changed_is_not_read_again_and_what_cannot_be_read_is_told_now() -> None:
    unreadable = CachedObject("/registry/events/here/bad", b"?", 1, 7)
    found = look([unreadable], {}, 100.0)
    assert found == {unreadable.key: Told(7, 100.0)}
    assert look([unreadable], found, 200.0) == found
    changed = CachedObject(unreadable.key, b"?", 1, 8)
    assert look([changed], found, 200.0) == {changed.key: Told(8, 200.0)}
    assert look([], found, 200.0) == {}
