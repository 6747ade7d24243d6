"""Events: counted when they repeat, bounded, sent in the background, not lost at the end."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from apiserver.core import ApiCore
from apiserver.store.memory import MemoryStore
from podyard.api.types import Event, Pod
from podyard.base import clock
from podyard.base.run import Background
from podyard.client.client import Client
from podyard.client.recorder import Recorder
from podyard.testing.faults import Link


def pod(name: str = "web") -> Pod:
    return Pod(metadata={"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "7"})


@asynccontextmanager
async def api():
    async with Background() as background:
        core = ApiCore(MemoryStore())
        core.start(background)
        while not core.bootstrap.done:
            await clock.sleep(0.05)
        link = Link()
        yield Client(core.transport("kubelet", "system:masters", gate=link.gate)), link, background


async def events(client) -> list[Event]:
    return (await client.list(Event, "default")).items


@pytest.mark.virtual
async def test_an_event_says_who_what_and_where():
    async with api() as (client, _, background):
        recorder = Recorder(client, "kubelet", "node-1")
        background.start(recorder.run())
        recorder.event(pod(), "Normal", "Pulled", "it is here", field_path="spec.containers{web}")
        await clock.sleep(1)
        (event,) = await events(client)
    about = event.involvedObject
    assert (about.kind, about.apiVersion, about.name, about.uid) == ("Pod", "v1", "web", "uid-web")
    assert about.fieldPath == "spec.containers{web}"
    assert (event.type, event.reason, event.message, event.count) == ("Normal", "Pulled", "it is here", 1)
    assert (event.source.component, event.source.host) == ("kubelet", "node-1")


@pytest.mark.virtual
async def test_what_repeats_is_counted_and_keeps_its_first_time():
    async with api() as (client, _, background):
        recorder = Recorder(client, "kubelet")
        background.start(recorder.run())
        for _ in range(3):
            recorder.event(pod(), "Warning", "BackOff", "again")
            await clock.sleep(10)
        (event,) = await events(client)
    assert event.count == 3
    assert event.lastTimestamp.seconds - event.firstTimestamp.seconds == 20


@pytest.mark.virtual
async def test_a_flood_about_one_object_is_cut_off_and_others_are_heard():
    async with api() as (client, _, background):
        recorder = Recorder(client, "kubelet")
        background.start(recorder.run())
        for number in range(100):
            recorder.event(pod(), "Warning", "Failed", f"reason {number}")
        recorder.event(pod("other"), "Normal", "Started", "up")
        await clock.sleep(5)
        names = [event.involvedObject.name for event in await events(client)]
    assert names.count("web") == 25
    assert names.count("other") == 1


@pytest.mark.virtual
async def test_events_wait_for_a_server_that_is_away_in_order():
    async with api() as (client, link, background):
        recorder = Recorder(client, "kubelet")
        background.start(recorder.run())
        link.cut()
        for reason in ("Pulling", "Pulled", "Created", "Started"):
            recorder.event(pod(), "Normal", reason, reason)
            await clock.sleep(0.01)
        await clock.sleep(20)
        link.mend()
        await clock.sleep(20)
        names = sorted((event.metadata.name, event.reason) for event in await events(client))
    assert [reason for _, reason in names] == ["Pulling", "Pulled", "Created", "Started"]


@pytest.mark.virtual
async def test_what_was_being_sent_at_the_end_is_flushed():
    async with api() as (client, link, background):
        recorder = Recorder(client, "kubelet")
        running = background.start(recorder.run())
        link.disturb(delay_s=100.0)
        recorder.event(pod(), "Normal", "Started", "up")
        await clock.sleep(0)
        running.cancel()
        await asyncio.wait({running})
        link.mend()
        await recorder.flush(1.0)
        assert [event.reason for event in await events(client)] == ["Started"]


@pytest.mark.virtual
@pytest.mark.parametrize("name", ["a" * 253, "x-" + "b" * 230 + ".c"])
async def test_long_names_have_events_too(name):
    async with api() as (client, _, background):
        recorder = Recorder(client, "kubelet")
        background.start(recorder.run())
        recorder.event(pod(name), "Normal", "Started", "up")
        await clock.sleep(1)
        (event,) = await events(client)
    assert event.involvedObject.name == name


@pytest.mark.virtual
async def test_the_queue_is_bounded():
    recorder = Recorder(Client(None), "kubelet")
    for number in range(3000):
        recorder.event(pod(f"p{number}"), "Normal", "Started", "up")
    assert len(recorder._queue) == 1000
