"""Leader election: never two at once, soon again after an orderly end, later after a sudden one."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from apiserver.core import ApiCore
from apiserver.store.memory import MemoryStore
from podyard.api.types import Lease
from podyard.base import clock
from podyard.base.run import Background
from podyard.client.client import Client
from podyard.client.leader import LeaderElection, LeadershipLost
from podyard.testing.faults import Link

NAME = "kube-scheduler"


class Candidate:
    """A process that competes, and notes when it led."""

    def __init__(self, core: ApiCore, identity: str, link: Link | None = None) -> None:
        self.link = link or Link()
        self.led: list[tuple[float, float]] = []
        self.lost: list[str] = []
        client = Client(core.transport(identity, "system:masters", gate=self.link.gate))
        self.election = LeaderElection(client, NAME, identity)

    async def lead(self) -> None:
        began_s = clock.now_s()
        try:
            await asyncio.Event().wait()
        finally:
            self.led.append((began_s, clock.now_s()))

    async def run(self) -> None:
        try:
            await self.election.run(self.lead)
        except* LeadershipLost as group:
            self.lost.append(str(group.exceptions[0]))


async def start(background: Background) -> ApiCore:
    core = ApiCore(MemoryStore())
    core.start(background)
    while not core.bootstrap.done:
        await clock.sleep(0.05)
    return core


async def until_leading(candidate: Candidate) -> float:
    async with clock.timeout(60):
        while not candidate.election.is_leader:
            await clock.sleep(0.05)
    return clock.now_s()


@pytest.mark.virtual
async def test_an_orderly_end_hands_over_at_once():
    async with Background() as background:
        core = await start(background)
        one, two = Candidate(core, "one"), Candidate(core, "two")
        first = background.start(one.run())
        await until_leading(one)
        background.start(two.run())
        await clock.sleep(30)
        assert not two.election.is_leader
        first.cancel()
        stopped_s = clock.now_s()
        assert await until_leading(two) - stopped_s < 3
        lease = await Client(core.transport("x", "system:masters")).get(Lease, NAME, "kube-system")
    assert (lease.spec.holderIdentity, lease.spec.leaseTransitions) == ("two", 1)


@pytest.mark.virtual
async def test_a_leader_that_is_cut_off_has_stopped_before_another_starts():
    async with Background() as background:
        core = await start(background)
        one, two = Candidate(core, "one"), Candidate(core, "two")
        background.start(one.run())
        await until_leading(one)
        background.start(two.run())
        await clock.sleep(20)
        one.link.cut()
        cut_s = clock.now_s()
        taken_s = await until_leading(two)
    ((_, ended_s),) = one.led
    assert ended_s - cut_s <= 10.1
    assert ended_s < taken_s
    assert 12 < taken_s - cut_s < 20
    assert one.lost == [f"{NAME} could not be renewed for 10 s"]


@pytest.mark.virtual
@pytest.mark.parametrize("slow_s", [3.0, 6.0, 9.5])
async def test_two_never_lead_at_once_over_poor_links(slow_s):
    """Answers that take seconds: the deadline counts from a renewal's start, not from its answer."""
    async with Background() as background:
        core = await start(background)
        candidates = [Candidate(core, name) for name in ("one", "two", "three")]

        async def live(candidate):
            while True:
                await candidate.run()
                await clock.sleep(0.5)

        for candidate in candidates:
            background.start(live(candidate))
        for minute in range(20):
            for number, candidate in enumerate(candidates):
                if (minute + number) % 3 == 0:
                    candidate.link.disturb(delay_s=slow_s, lost=0.3)
                else:
                    candidate.link.mend()
            await clock.sleep(60)
    terms = sorted(term for candidate in candidates for term in candidate.led)
    assert len(terms) > 1
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(terms))


class LateAnswer(Link):
    """The next answer takes nine seconds, and is the last thing that passes."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0
        self.armed = False

    async def gate(self) -> None:
        await super().gate()
        if self.armed:
            self.passed += 1
            if self.passed == 2:
                self.cut()
                await clock.sleep(9.0)


@pytest.mark.virtual
async def test_the_deadline_counts_from_a_renewals_start_not_from_its_late_answer():
    async with Background() as background:
        core = await start(background)
        one, two = Candidate(core, "one", LateAnswer()), Candidate(core, "two")
        background.start(one.run())
        await until_leading(one)
        background.start(two.run())
        await clock.sleep(20)
        one.link.armed = True
        armed_s = clock.now_s()
        taken_s = await until_leading(two)
    ((_, ended_s),) = one.led
    # The renewal began at most two seconds after it was armed.
    assert ended_s - armed_s <= 12.1
    assert ended_s < taken_s


@pytest.mark.virtual
async def test_a_leader_whose_lease_was_taken_by_hand_gives_up():
    async with Background() as background:
        core = await start(background)
        one = Candidate(core, "one")
        background.start(one.run())
        await until_leading(one)
        admin = Client(core.transport("admin", "system:masters"))
        await admin.patch(Lease, NAME, "kube-system", body={"spec": {"holderIdentity": "somebody"}})
        await clock.sleep(5)
        assert not one.election.is_leader
    assert one.lost == [f"{NAME} is held by somebody"]
