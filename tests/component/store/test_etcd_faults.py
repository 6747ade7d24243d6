"""The etcd store while members die, freeze, and answers get lost.

What is proved here: nobody is told 'failed' of a write that happened or 'done' of one that did not,
a delayed transaction never strikes later, and a watch neither loses, doubles nor reorders.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from apiserver.store.base import (
    Expired,
    KeyExists,
    OutcomeUnknown,
    RevisionMismatch,
    StoreError,
    StoreEvent,
    StoreUnavailable,
)
from apiserver.store.etcd import EtcdStore


@dataclass
class Relay:
    """A TCP relay in front of etcd that can lose answers, hold requests back, or cut.

    Attributes:
        lose_answers: bytes from etcd are thrown away.
        hold: bytes to etcd are kept in `held` until `release`.
    """

    target: str
    lose_answers: bool = False
    hold: bool = False
    held: list[tuple[asyncio.StreamWriter, bytes]] = field(default_factory=list)
    endpoint: str = ""
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.endpoint = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self.target.split(":")
        up_reader, up_writer = await asyncio.open_connection(host, int(port))
        self._writers |= {writer, up_writer}

        async def to_etcd() -> None:
            while data := await reader.read(65536):
                if self.hold:
                    self.held.append((up_writer, data))
                else:
                    up_writer.write(data)
            if not self.held:
                up_writer.close()

        async def from_etcd() -> None:
            while data := await up_reader.read(65536):
                if not self.lose_answers:
                    writer.write(data)
            writer.close()

        try:
            await asyncio.gather(to_etcd(), from_etcd(), return_exceptions=True)
        finally:
            writer.close()

    async def cut(self) -> None:
        """Breaks all connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def release(self) -> None:
        """Lets what was held arrive, piece by piece, as a thawed member would read it."""
        for writer, data in self.held:
            writer.write(data)
            await asyncio.sleep(0.2)
        self.held.clear()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self.cut()
        await self._server.wait_closed()


@asynccontextmanager
async def relayed(etcd: Any, *, direct: bool = True) -> AsyncIterator[tuple[EtcdStore, Relay, EtcdStore]]:
    """A store whose first way to etcd is a relay (the second direct), and an independent store."""
    relay = Relay(etcd.endpoint)
    await relay.start()
    endpoints = [relay.endpoint, etcd.endpoint] if direct else [relay.endpoint]
    store = EtcdStore(endpoints, attempt_timeout_s=0.5, timeout_s=5.0)
    other = EtcdStore([etcd.endpoint])
    try:
        await store.current_revision()
        yield store, relay, other
    finally:
        await store.close()
        await other.close()
        await relay.stop()


async def test_lost_answer_of_writes_that_happened(etcd: Any, key_prefix: str) -> None:
    key = key_prefix + "a"
    async with relayed(etcd) as (store, relay, other):
        relay.lose_answers = True
        created = await store.create(key, b"1")
        assert (await other.get(key))[0] is not None
        events = await history(other, key_prefix, created, 1)
        assert [(event.revision, event.value) for event in events] == [(created, b"1")]
    async with relayed(etcd) as (store, relay, other):
        relay.lose_answers = True
        updated = await store.update(key, b"2", expected_revision=created)
        found, _ = await other.get(key)
        assert found is not None
        assert (found.value, found.mod_revision) == (b"2", updated)
    async with relayed(etcd) as (store, relay, other):
        relay.lose_answers = True
        deleted = await store.delete(key, expected_revision=updated)
        assert (await other.get(key))[0] is None
        events = await history(other, key_prefix, created, 3)
        assert [event.revision for event in events] == [created, updated, deleted]


async def test_lost_answer_with_a_broken_connection(etcd: Any, key_prefix: str) -> None:
    async with relayed(etcd) as (store, relay, other):
        start = await other.current_revision() + 1
        relay.lose_answers = True
        async with asyncio.TaskGroup() as group:
            write = group.create_task(store.create(key_prefix + "a", b"1"))
            await history(other, key_prefix, start, 1)
            await relay.cut()
        found, _ = await other.get(key_prefix + "a")
        assert found is not None
        assert found.mod_revision == write.result()


async def test_lost_request_is_sent_again(etcd: Any, key_prefix: str) -> None:
    async with relayed(etcd) as (store, relay, other):
        relay.hold = True
        created = await store.create(key_prefix + "a", b"1")
        found, _ = await other.get(key_prefix + "a")
        assert found is not None
        assert found.mod_revision == created


async def test_a_delayed_create_does_not_bring_a_deleted_key_back(etcd: Any, key_prefix: str) -> None:
    key = key_prefix + "a"
    async with relayed(etcd) as (store, relay, other):
        relay.hold = True
        created = await store.create(key, b"1")
        deleted = await store.delete(key, expected_revision=created)
        assert relay.held
        await relay.release()
        assert (await other.get(key))[0] is None
        marker = await other.create(key_prefix + "z", b"")
        events = await history(other, key_prefix, created, 3)
        assert [event.revision for event in events] == [created, deleted, marker]


async def test_equal_bytes_of_another_writer_are_not_taken_for_ours(etcd: Any, key_prefix: str) -> None:
    """Both count 5 up to 6: the one whose transaction never ran must not be told that it did."""
    key = key_prefix + "count"
    async with relayed(etcd) as (store, relay, other):
        five = await other.create(key, b"5")
        relay.hold = True

        async def other_counts() -> int:
            await until(lambda: bool(relay.held))
            return await other.update(key, b"6", expected_revision=five)

        async with asyncio.TaskGroup() as group:
            other_write = group.create_task(other_counts())
            with pytest.raises(RevisionMismatch) as mismatch:
                await store.update(key, b"6", expected_revision=five)
        assert mismatch.value.current is not None
        assert mismatch.value.current.mod_revision == other_write.result()
        await relay.release()
        events = await history(other, key_prefix, five, 2)
        assert [event.value for event in events] == [b"5", b"6"]


@pytest.mark.parametrize("then", ["overwritten", "deleted", "deleted and made again"])
async def test_our_write_is_known_though_others_went_on(etcd: Any, key_prefix: str, then: str) -> None:
    key = key_prefix + "a"
    async with relayed(etcd) as (store, relay, other):
        first = await other.create(key, b"1")
        relay.lose_answers = True

        async def go_on() -> int:
            while True:
                found, _ = await other.get(key)
                assert found is not None
                if found.value == b"2":
                    break
                await asyncio.sleep(0.005)
            if then == "overwritten":
                await other.update(key, b"1", expected_revision=found.mod_revision)
            else:
                await other.delete(key, expected_revision=found.mod_revision)
                if then != "deleted":
                    await other.create(key, b"1")
            return found.mod_revision

        async with asyncio.TaskGroup() as group:
            seen = group.create_task(go_on())
            ours = await store.update(key, b"2", expected_revision=first)
        assert ours == seen.result()


async def test_unknown_outcome_is_called_unknown(etcd: Any, key_prefix: str) -> None:
    async with relayed(etcd, direct=False) as (store, relay, _):
        relay.lose_answers = True
        with pytest.raises(OutcomeUnknown):
            await store.create(key_prefix + "a", b"1")


async def test_unreachable_is_called_failed_and_nothing_happens(own_etcd: Any, key_prefix: str) -> None:
    store = EtcdStore([own_etcd.endpoint], timeout_s=1.0)
    revision = await store.create(key_prefix + "a", b"1")
    own_etcd.kill()
    with pytest.raises(StoreUnavailable):
        await store.get(key_prefix + "a")
    # By now the channel knows that it cannot connect, so the write is never sent.
    with pytest.raises(StoreUnavailable):
        await store.update(key_prefix + "a", b"2", expected_revision=revision)
    own_etcd.start()
    found = await within(30, lambda: store.get(key_prefix + "a"))
    assert found[0].value == b"1"
    await store.close()


async def test_many_lost_answers_at_once(etcd: Any, key_prefix: str) -> None:
    async with relayed(etcd) as (store, relay, other):
        relay.lose_answers = True
        async with asyncio.TaskGroup() as group:
            writes = [
                group.create_task(store.create(f"{key_prefix}{index:03}", b"x")) for index in range(100)
            ]
        page = await other.list(key_prefix)
        assert [item.mod_revision for item in page.items] == [write.result() for write in writes]


async def test_a_fence_raised_by_one_store_does_not_fail_the_writes_of_others(
    etcd: Any, key_prefix: str
) -> None:
    async with relayed(etcd) as (store, relay, other):
        first = await other.create(key_prefix + "b", b"1")
        relay.lose_answers = True
        await store.create(key_prefix + "a", b"1")
        second = await other.update(key_prefix + "b", b"2", expected_revision=first)
        assert second > first
        fresh = EtcdStore([etcd.endpoint])
        with pytest.raises(KeyExists):
            await fresh.create(key_prefix + "b", b"3")
        await fresh.delete(key_prefix + "b", expected_revision=second)
        await fresh.close()


async def test_watch_over_a_cut_connection(etcd: Any, key_prefix: str) -> None:
    async with relayed(etcd, direct=False) as (store, relay, other):
        start = await other.current_revision() + 1
        written: list[int] = []
        async with asyncio.TaskGroup() as group:
            reader = group.create_task(history(store, key_prefix, start, 200))
            for index in range(200):
                written.append(await other.create(f"{key_prefix}{index}", b"x" * 5_000))
                if index % 40 == 20:
                    await relay.cut()
        assert [event.revision for event in reader.result()] == written


async def test_compaction_during_an_interrupted_watch_expires_it(etcd: Any, key_prefix: str) -> None:
    async with relayed(etcd, direct=False) as (store, relay, other):
        first = await other.create(key_prefix + "a", b"1")
        async with asyncio.timeout(20), aclosing(store.watch(key_prefix, start_revision=first)) as watch:
            await anext(watch)
            relay.hold = relay.lose_answers = True
            second = await other.update(key_prefix + "a", b"2", expected_revision=first)
            third = await other.update(key_prefix + "a", b"3", expected_revision=second)
            await other.compact(third)
            relay.hold = relay.lose_answers = False
            await relay.cut()
            with pytest.raises(Expired) as expired:
                await anext(watch)
            assert expired.value.compact_revision == third


async def test_kill_and_restart_under_load(own_etcd: Any, key_prefix: str) -> None:
    """etcd is killed three times: each acknowledged write is there, and each is seen once by the watch."""
    store = EtcdStore([own_etcd.endpoint], timeout_s=20.0)
    start = await store.current_revision() + 1
    acknowledged: dict[str, int] = {}
    unknown: set[str] = set()
    stop = asyncio.Event()

    async def write(worker: int) -> None:
        index = 0
        while not stop.is_set():
            key = f"{key_prefix}{worker}-{index:05}"
            index += 1
            try:
                acknowledged[key] = await store.create(key, key.encode())
            except OutcomeUnknown:
                unknown.add(key)
            except StoreUnavailable:
                pass

    async with asyncio.TaskGroup() as group:
        events: list[StoreEvent] = []
        watcher = group.create_task(append_events(store, key_prefix, start, events))
        workers = [group.create_task(write(worker)) for worker in range(4)]
        for _ in range(3):
            before = len(acknowledged)
            await until(lambda before=before: len(acknowledged) >= before + 100)
            await asyncio.to_thread(own_etcd.kill)
            await asyncio.to_thread(own_etcd.start)
        stop.set()
        await asyncio.gather(*workers)
        last = await store.create(key_prefix + "zz", b"")
        await until(lambda: bool(events) and events[-1].revision >= last)
        watcher.cancel()
    page = await store.list(key_prefix)
    stored = {item.key: item.mod_revision for item in page.items}
    assert acknowledged.items() <= stored.items()
    assert set(stored) - set(acknowledged) <= unknown | {key_prefix + "zz"}
    assert [event.revision for event in events] == sorted(stored.values())
    await store.close()


async def test_a_frozen_member_and_its_late_transactions(etcd_cluster: Any, key_prefix: str) -> None:
    """The member in use freezes under load: work goes on through the others, and its thaw changes nothing."""
    store = EtcdStore([member.endpoint for member in etcd_cluster])
    start = await store.current_revision() + 1
    acknowledged: dict[str, int] = {}
    gaps: list[float] = []
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def write(worker: int) -> None:
        index, key = 0, f"{key_prefix}{worker}"
        while not stop.is_set():
            began = loop.time()
            # Create and delete the same key over and over: where a late create could strike.
            revision = await store.create(key, b"")
            acknowledged[f"{worker}+{index}"] = revision
            acknowledged[f"{worker}-{index}"] = await store.delete(key, expected_revision=revision)
            gaps.append(loop.time() - began)
            index += 1

    async with asyncio.TaskGroup() as group:
        events: list[StoreEvent] = []
        watcher = group.create_task(append_events(store, key_prefix, start, events))
        workers = [group.create_task(write(worker)) for worker in range(4)]
        for member in etcd_cluster:
            before = len(acknowledged)
            await until(lambda before=before: len(acknowledged) >= before + 50)
            await asyncio.to_thread(member.pause)
            before = len(acknowledged)
            await until(lambda before=before: len(acknowledged) >= before + 50)
            await asyncio.to_thread(member.resume)
        stop.set()
        await asyncio.gather(*workers)
        last = await store.create(key_prefix + "zz", b"")
        await until(lambda: bool(events) and events[-1].revision >= last)
        watcher.cancel()
    assert [event.revision for event in events] == sorted([*acknowledged.values(), last])
    assert [item.key for item in (await store.list(key_prefix)).items] == [key_prefix + "zz"]
    assert max(gaps) < 15
    await store.close()


async def test_killed_members_of_a_cluster(etcd_cluster: Any, key_prefix: str) -> None:
    store = EtcdStore([member.endpoint for member in etcd_cluster])
    start = await store.current_revision() + 1
    events: list[StoreEvent] = []
    revisions: list[int] = []
    async with asyncio.TaskGroup() as group:
        watcher = group.create_task(append_events(store, key_prefix, start, events))
        for round_number, member in enumerate(etcd_cluster):
            await asyncio.to_thread(member.kill)
            for index in range(20):
                key = f"{key_prefix}{round_number}-{index}"
                revisions.append(await within(20, lambda key=key: store.create(key, b"")))
            await asyncio.to_thread(member.start)
        await until(lambda: bool(events) and events[-1].revision >= revisions[-1])
        watcher.cancel()
    assert [event.revision for event in events] == revisions
    await store.close()


async def history(store: EtcdStore, prefix: str, start: int, count: int) -> list[StoreEvent]:
    events: list[StoreEvent] = []
    async with asyncio.timeout(30), aclosing(store.watch(prefix, start_revision=start)) as watch:
        async for batch in watch:
            events.extend(batch.events)
            if len(events) >= count:
                break
    return events


async def append_events(store: EtcdStore, prefix: str, start: int, events: list[StoreEvent]) -> None:
    async with aclosing(store.watch(prefix, start_revision=start)) as watch:
        async for batch in watch:
            events.extend(batch.events)


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not reached():  # noqa: ASYNC110 - the state of other tasks, not of one event
            await asyncio.sleep(0.01)


async def within(seconds: float, attempt: Callable[[], Awaitable[Any]]) -> Any:
    """The first answer that is not a store error."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                return await attempt()
            except StoreError:
                await asyncio.sleep(0.05)
