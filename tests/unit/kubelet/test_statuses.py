"""Statuses on their way: only differences, the latest wins, nothing waits for the server."""

from __future__ import annotations

import asyncio

import pytest

from apiserver.core import ApiCore
from apiserver.store.memory import MemoryStore
from kubelet.statuses import StatusChannel, StatusWriter, status_patch
from podyard.api import errors
from podyard.api.types import Pod, PodStatus, ServiceAccount
from podyard.base import clock
from podyard.base.run import Background
from podyard.client.client import Client
from podyard.testing.faults import Link
from podyard.testing.world import simple_pod


def ready(value: str, at_s: int = 1) -> dict:
    return {"type": "Ready", "status": value, "lastTransitionTime": {"seconds": at_s}}


def test_nothing_new_is_no_patch():
    status = PodStatus(phase="Running", podIPs=[{"ip": "10.0.0.1"}], conditions=[ready("True")])
    assert status_patch(status, status) is None


def test_only_what_differs_is_in_it():
    old = PodStatus(phase="Pending", hostIP="192.0.2.1", conditions=[ready("False")], reason="Old")
    new = PodStatus(phase="Running", hostIP="192.0.2.1", conditions=[ready("False")])
    assert status_patch(old, new) == {"phase": "Running", "reason": None}


def test_conditions_go_one_by_one_and_addresses_as_a_whole():
    old = PodStatus(
        conditions=[ready("False"), {"type": "Other", "status": "True"}], podIPs=[{"ip": "10.0.0.1"}]
    )
    new = PodStatus(
        conditions=[{"type": "Other", "status": "True"}, ready("True", 5)], podIPs=[{"ip": "10.0.0.2"}]
    )
    patch = status_patch(old, new)
    assert [entry["type"] for entry in patch["conditions"]] == ["Ready"]
    assert patch["podIPs"] == [{"$patch": "replace"}, {"ip": "10.0.0.2"}]


def test_a_condition_loses_the_fields_that_it_has_no_more():
    unready = {**ready("False"), "reason": "ContainersNotReady", "message": "containers with unready status"}
    patch = status_patch(PodStatus(conditions=[unready]), PodStatus(conditions=[ready("True")]))
    (condition,) = patch["conditions"]
    assert condition["status"] == "True"
    assert condition["reason"] is None
    assert condition["message"] is None


class Setting:
    """A pod in an API server, and a channel to it over a link."""

    def __init__(self, core: ApiCore) -> None:
        self.link = Link()
        self.admin = Client(core.transport("admin", "system:masters"))
        self.writer = StatusWriter(Client(core.transport("kubelet", "system:masters", gate=self.link.gate)))
        self.settled_at_s: list[float] = []
        self.channel = StatusChannel(self.writer, lambda: self.settled_at_s.append(clock.now_s()))

    async def pod(self) -> Pod:
        return await self.admin.get(Pod, "web", "default")


@pytest.fixture
async def setting():
    async with Background() as background:
        core = ApiCore(MemoryStore())
        core.start(background)
        while not core.bootstrap.done:
            await clock.sleep(0.05)
        made = Setting(core)
        await made.admin.create(ServiceAccount(metadata={"name": "default", "namespace": "default"}))
        await made.admin.create(simple_pod("web", nodeName="node-1"))
        background.start(made.channel.run())
        yield made


pytestmark = pytest.mark.virtual


async def test_a_status_arrives_and_the_channel_is_settled(setting):
    setting.channel.offer(await setting.pod(), PodStatus(phase="Running", podIP="10.0.0.1"))
    assert not setting.channel.settled
    await clock.sleep(1)
    assert setting.channel.settled
    assert len(setting.settled_at_s) == 1
    assert (await setting.pod()).status.podIP == "10.0.0.1"


async def test_the_latest_wins_while_the_server_is_away_and_nobody_waits(setting):
    pod = await setting.pod()
    setting.link.cut()
    began_s = clock.now_s()
    for number in range(1, 4):
        setting.channel.offer(pod, PodStatus(phase="Running", message=str(number)))
    assert clock.now_s() == began_s
    await clock.sleep(30)
    assert not setting.channel.settled
    setting.link.mend()
    await clock.sleep(12)
    assert setting.channel.settled
    after = await setting.pod()
    assert after.status.message == "3"
    # One write, not three.
    assert int(after.metadata.resourceVersion) == int(pod.metadata.resourceVersion) + 1


async def test_an_answer_that_was_lost_does_not_lead_to_a_second_write(setting):
    pod = await setting.pod()
    setting.link.disturb(lost=0.5)
    setting.channel.offer(pod, PodStatus(phase="Running"))
    await clock.sleep(60)
    setting.link.mend()
    await clock.sleep(12)
    assert (await setting.pod()).status.phase == "Running"
    assert int((await setting.pod()).metadata.resourceVersion) == int(pod.metadata.resourceVersion) + 1


async def test_a_pod_that_is_gone_settles_at_once(setting):
    pod = await setting.pod()
    await setting.admin.delete(Pod, "web", "default", grace_s=0)
    setting.channel.offer(pod, PodStatus(phase="Failed"))
    await clock.sleep(1)
    assert setting.channel.settled


async def test_another_pod_of_the_name_gets_nothing(setting):
    pod = await setting.pod()
    await setting.admin.delete(Pod, "web", "default", grace_s=0)
    await setting.admin.create(simple_pod("web", nodeName="node-1"))
    setting.channel.offer(pod, PodStatus(phase="Failed"))
    await clock.sleep(30)
    assert (await setting.pod()).status.phase == "Pending"


async def test_what_the_server_refuses_for_good_is_not_tried_for_ever(setting):
    class Refusing:
        tries = 0

        async def patch(self, *arguments, **options):
            self.tries += 1
            raise errors.Invalid("no")

    refusing = Refusing()
    done = asyncio.Event()
    channel = StatusChannel(StatusWriter(refusing), done.set)
    async with Background() as background:
        background.start(channel.run())
        channel.offer(await setting.pod(), PodStatus(phase="Failed"))
        async with clock.timeout(5):
            await done.wait()
        await clock.sleep(60)
    assert refusing.tries == 1
