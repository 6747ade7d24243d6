"""The informer: its copy, its order and its resumption, against scripted watches."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from podyard.api import errors
from podyard.api.types import ConfigMap, Key
from podyard.base import clock
from podyard.base.run import Background
from podyard.client.client import WatchBatch, WatchEvent
from podyard.client.informer import Informer


def config(name: str, revision: int, uid: str = "") -> ConfigMap:
    metadata = {"name": name, "namespace": "default", "uid": uid or name, "resourceVersion": str(revision)}
    return ConfigMap(metadata=metadata, data={"revision": str(revision)})


def added(name: str, revision: int, **more) -> WatchEvent:
    return WatchEvent("ADDED", config(name, revision, **more))


def changed(name: str, revision: int) -> WatchEvent:
    return WatchEvent("MODIFIED", config(name, revision))


def deleted(name: str, revision: int) -> WatchEvent:
    return WatchEvent("DELETED", config(name, revision))


def batch(*events: WatchEvent, revision: int | str = "", synced: bool = False) -> WatchBatch:
    return WatchBatch(list(events), str(revision), synced)


class Watches:
    """A client whose watches are scripts: batches, then an error, or None to stay open."""

    def __init__(self, *scripts):
        self._scripts = list(scripts)
        self.asked: list[tuple[str, bool, float]] = []

    async def watch(self, kind, *, resource_version, send_initial_events, **selection):
        self.asked.append((resource_version, send_initial_events, clock.now_s()))
        script = self._scripts.pop(0) if self._scripts else [None]
        for step in script:
            if step is None:
                await asyncio.Event().wait()
            if isinstance(step, (int, float)):
                await clock.sleep(step)
                continue
            if isinstance(step, Exception):
                raise step
            yield step


async def follow(watches: Watches, seconds: float = 60.0):
    informer = Informer(watches, ConfigMap)
    seen = []

    def on_change(old, new):
        before = int(old.metadata.resourceVersion) if old is not None else None
        after = int(new.metadata.resourceVersion) if new is not None else None
        seen.append(((new if new is not None else old).metadata.name, before, after))

    informer.on_change(on_change)
    async with Background() as background:
        background.start(informer.run())
        await clock.sleep(seconds)
    return informer, seen


@pytest.mark.virtual
async def test_the_first_state_then_what_happens():
    watches = Watches(
        [
            batch(added("a", 1)),
            batch(added("b", 2), revision=5, synced=True),
            batch(changed("a", 7), revision=7),
            None,
        ]
    )
    informer, seen = await follow(watches)
    assert seen == [("a", None, 1), ("b", None, 2), ("a", 1, 7)]
    assert informer.revision == 7
    assert informer.synced.is_set()
    assert watches.asked[0][:2] == ("", True)


@pytest.mark.virtual
async def test_a_first_state_that_breaks_off_is_no_state():
    watches = Watches(
        [batch(added("a", 1)), errors.Unavailable("gone")],
        [batch(added("a", 1), added("b", 2)), 30.0, batch(revision=9, synced=True), None],
    )
    informer = Informer(watches, ConfigMap)
    async with Background() as background:
        background.start(informer.run())
        await clock.sleep(20)
        assert not informer.synced.is_set()
        await informer.synced.wait()
    assert [entry[:2] for entry in watches.asked] == [("", True), ("", True)]
    assert informer.revision == 9


@pytest.mark.virtual
async def test_a_broken_watch_resumes_where_it_was():
    watches = Watches(
        [batch(added("a", 1), revision=4, synced=True), batch(revision=8), errors.Unavailable("gone")],
        [batch(deleted("a", 9), revision=9), None],
    )
    informer, seen = await follow(watches)
    assert [entry[:2] for entry in watches.asked] == [("", True), ("8", False)]
    assert seen == [("a", None, 1), ("a", 1, None)]
    assert len(informer) == 0
    assert informer.gone_at_s(Key("default", "a")) is not None


@pytest.mark.virtual
async def test_after_410_it_starts_over_and_reports_the_difference_and_never_goes_back():
    watches = Watches(
        [
            batch(added("a", 1), added("b", 2), added("c", 3), revision=5, synced=True),
            errors.Expired("too old"),
        ],
        [
            batch(added("a", 1), added("c", 30, uid="c2")),
            batch(added("d", 31), revision=40, synced=True),
            None,
        ],
    )
    informer = Informer(watches, ConfigMap)
    seen, revisions = [], []
    informer.on_change(lambda old, new: seen.append((old, new)))
    informer.on_change(lambda old, new: revisions.append(informer.revision))
    async with Background() as background:
        background.start(informer.run())
        await informer.wait_for(40)
    assert [entry[:2] for entry in watches.asked] == [("", True), ("", True)]
    assert sorted(obj.metadata.name for obj in informer) == ["a", "c", "d"]
    names = [((new or old).metadata.name, old is None, new is None) for old, new in seen[3:]]
    # The unchanged one is not reported, the one that vanished is.
    assert names == [("c", False, False), ("d", True, False), ("b", False, True)]
    assert revisions == sorted(revisions)


@pytest.mark.virtual
async def test_failures_wait_longer_each_time_and_a_good_stream_forgives_them():
    broken = [errors.Unavailable("no")]
    watches = Watches(
        [batch(revision=1, synced=True), errors.Unavailable("no")],
        *[broken] * 6,
        [batch(revision=2), 3600.0, errors.Unavailable("no")],
        [None],
    )
    await follow(watches, 4000)
    times = [when for _, _, when in watches.asked]
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert waits[:7] == sorted(waits[:7])
    assert waits[6] > 8
    assert waits[7] - 3600 < 0.5


@pytest.mark.virtual
async def test_whoever_waits_for_a_revision_is_woken_by_a_bookmark_too():
    watches = Watches(
        [batch(revision=1, synced=True), 5.0, batch(WatchEvent("BOOKMARK", ConfigMap()), revision=9), None]
    )
    informer = Informer(watches, ConfigMap)
    async with Background() as background:
        background.start(informer.run())
        async with clock.timeout(10):
            await informer.wait_for(8)
        with pytest.raises(TimeoutError):
            async with clock.timeout(1):
                await informer.wait_for(10)
        assert informer._waiters == []


@pytest.mark.virtual
async def test_indexes_follow_every_change_and_handlers_that_come_late_see_what_is_there():
    watches = Watches(
        [
            batch(added("a", 1), added("b", 2), revision=2, synced=True),
            batch(changed("a", 3), deleted("b", 4), revision=4),
            None,
        ]
    )
    informer = Informer(watches, ConfigMap, indexes={"revision": lambda obj: (obj.data["revision"],)})
    async with Background() as background:
        background.start(informer.run())
        await informer.wait_for(4)
    assert [obj.metadata.name for obj in informer.by_index("revision", "3")] == ["a"]
    assert informer.by_index("revision", "1") == informer.by_index("revision", "2") == []
    late = []
    informer.on_change(lambda old, new: late.append((old, new.metadata.name)))
    assert late == [(None, "a")]


@pytest.mark.virtual
async def test_a_refresh_asks_for_the_whole_state_although_the_watch_is_open_and_silent():
    watches = Watches(
        [batch(added("a", 1), added("b", 2), revision=5, synced=True), None],
        [batch(added("b", 2)), 3.0, batch(added("c", 8), revision=9, synced=True), None],
    )
    informer = Informer(watches, ConfigMap)
    seen = []
    informer.on_change(lambda old, new: seen.append((new or old).metadata.name))
    async with Background() as background:
        background.start(informer.run())
        await informer.synced.wait()
        await informer.refresh()  # it is fresh
        assert len(watches.asked) == 1
        await clock.sleep(60)
        began_s = clock.now_s()
        await informer.refresh()
        assert clock.now_s() - began_s == pytest.approx(3.0, abs=0.1)
    assert [entry[:2] for entry in watches.asked] == [("", True), ("", True)]
    assert seen == ["a", "b", "c", "a"]
    assert informer.revision == 9


@pytest.mark.virtual
async def test_a_refresh_while_the_server_is_away_ends_when_it_is_back():
    watches = Watches(
        [batch(added("a", 1), revision=5, synced=True), None],
        [errors.Unavailable("away")],
        [errors.Unavailable("away")],
        [batch(added("a", 6), revision=6, synced=True), None],
    )
    informer = Informer(watches, ConfigMap)
    async with Background() as background:
        background.start(informer.run())
        await informer.synced.wait()
        await clock.sleep(60)
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.refresh())
            await clock.sleep(0.1)
            # Once more, while it waits before its next try.
            group.create_task(informer.refresh())
        assert informer.get(Key("default", "a")).metadata.resourceVersion == "6"
