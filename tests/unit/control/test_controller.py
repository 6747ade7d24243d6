"""The controller shell: its barrier, its retries, what ends it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from apiserver.core import ApiCore
from apiserver.store.memory import MemoryStore
from podyard.api.types import ConfigMap, Event, Key, Namespace, copy_of
from podyard.base import clock, ids
from podyard.base.run import Background
from podyard.client.client import Client
from podyard.client.informer import InformerSet
from podyard.client.recorder import Recorder
from podyard.control.actions import Announced, Create, Delete, RequeueAfter, Update
from podyard.control.controller import Controller
from podyard.control.spec import ControllerSpec
from podyard.testing.faults import Link

KEYS = 40
TEAM = Key("", "team")


class Setting:
    """An API server, and one controller on a link."""

    def __init__(self, core: ApiCore, background: Background) -> None:
        self.core = core
        self.background = background
        self.link = Link()
        self.admin = Client(core.transport("admin", "system:masters"))

    async def run(self, spec: ControllerSpec) -> asyncio.Task:
        client = Client(self.core.transport("controller", "system:masters", gate=self.link.gate))
        informers = InformerSet(client)
        recorder = Recorder(client, "test")
        controller = Controller(spec, client, informers, recorder)
        self.background.start(informers.run())
        self.background.start(recorder.run())
        return self.background.start(controller.run())

    async def configs(self) -> list[ConfigMap]:
        listed = await self.admin.list(ConfigMap, "team")
        return [obj for obj in listed.items if obj.metadata.generateName == "c-"]


@asynccontextmanager
async def setting(seed: int = 1):
    ids.seed(seed)
    try:
        async with Background() as background:
            core = ApiCore(MemoryStore())
            core.start(background)
            while not core.bootstrap.done:
                await clock.sleep(0.05)
            made = Setting(core, background)
            await made.admin.create(Namespace(metadata={"name": "team"}))
            yield made
    finally:
        ids.seed(None)


def keeper(count: int, **more) -> ControllerSpec:
    """Keeps so many ConfigMaps with generated names in the namespace `team`."""

    def reconcile(view, key):
        namespace = view.get(Namespace, key)
        if namespace is None or key != TEAM:
            return []
        owner = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "name": "team",
            "uid": namespace.metadata.uid,
            "controller": True,
        }
        metadata = {"generateName": "c-", "namespace": "team", "ownerReferences": [owner]}
        present = view.owned(ConfigMap, namespace.metadata.uid)
        missing = [Create(ConfigMap(metadata=metadata)) for _ in range(count - len(present))]
        surplus = [
            Delete(ConfigMap, Key("team", obj.metadata.name), obj.metadata.uid) for obj in present[count:]
        ]
        return [*missing, *surplus]

    return ControllerSpec(
        name="keeper",
        for_=Namespace,
        reconcile=reconcile,
        maps={ConfigMap: lambda old, new, view: [TEAM]},
        **more,
    )


@pytest.mark.virtual
@pytest.mark.parametrize("seed", range(1, 9))
async def test_nothing_is_created_twice_over_a_link_that_loses_answers_and_lags(seed):
    """One object for each of many keys: each answer that is lost tempts to create it again."""

    def reconcile(view, key):
        namespace = view.get(Namespace, key)
        if namespace is None or not key.name.startswith("team-"):
            return []
        if view.list(ConfigMap, key.name):
            return []
        return [Create(ConfigMap(metadata={"generateName": "c-", "namespace": key.name}))]

    spec = ControllerSpec(
        name="one-each", for_=Namespace, reconcile=reconcile, reads=(ConfigMap,), workers=20
    )
    async with setting(seed) as made:
        for number in range(KEYS):
            await made.admin.create(Namespace(metadata={"name": f"team-{number}"}))
        made.link.disturb(lost=0.3, delay_s=2.0)
        await made.run(spec)
        await clock.sleep(900)
        made.link.mend()
        await clock.sleep(120)
        listed = await made.admin.list(ConfigMap)
        assert sorted(obj.metadata.namespace for obj in listed.items) == sorted(
            f"team-{number}" for number in range(KEYS)
        )


@pytest.mark.virtual
async def test_what_someone_deletes_comes_back_and_what_someone_adds_goes():
    async with setting() as made:
        await made.run(keeper(3))
        await clock.sleep(5)
        first = await made.configs()
        assert len(first) == 3
        await made.admin.delete(ConfigMap, first[0].metadata.name, "team")
        await clock.sleep(5)
        second = await made.configs()
        assert len(second) == 3
        extra = copy_of(second[0])
        extra.metadata.Clear()
        extra.metadata.name, extra.metadata.namespace = "extra", "team"
        extra.metadata.ownerReferences.extend(second[0].metadata.ownerReferences)
        await made.admin.create(extra)
        await clock.sleep(5)
        listed = await made.admin.list(ConfigMap, "team")
        assert sum(1 for obj in listed.items if obj.metadata.ownerReferences) == 3


@pytest.mark.virtual
async def test_a_conflict_is_decided_again_on_what_is_there_now():
    async with setting() as made:
        tries = []

        def reconcile(view, key):
            namespace = view.get(Namespace, key)
            if namespace is None or key != TEAM or namespace.metadata.labels.get("done"):
                return []
            changed = copy_of(namespace)
            changed.metadata.labels["done"] = "yes"
            if not tries:
                changed.metadata.resourceVersion = "1"  # someone was faster
            tries.append(clock.now_s())
            return [Update(changed)]

        await made.run(ControllerSpec(name="labels", for_=Namespace, reconcile=reconcile))
        await clock.sleep(5)
        namespace = await made.admin.get(Namespace, "team")
    assert namespace.metadata.labels["done"] == "yes"
    assert len(tries) == 2
    assert tries[1] - tries[0] < 0.1


@pytest.mark.virtual
async def test_a_taken_name_is_decided_again_on_who_has_it():
    """The view that led to the create was old: the one that has the name may be a stranger."""
    async with setting() as made:
        await made.admin.create(ConfigMap(metadata={"name": "wanted", "namespace": "team"}))
        looks = []

        def reconcile(view, key):
            if key != TEAM or view.get(Namespace, key) is None:
                return []
            present = {obj.metadata.name for obj in view.list(ConfigMap, "team")}
            looks.append("wanted" in present)
            if "other" in present:
                return []
            # As if the first look had come before the watch told of it.
            name = "other" if len(looks) > 1 and "wanted" in present else "wanted"
            return [Create(ConfigMap(metadata={"name": name, "namespace": "team"}))]

        await made.run(
            ControllerSpec(name="names", for_=Namespace, reconcile=reconcile, reads=(ConfigMap,), workers=1)
        )
        await clock.sleep(5)
        await made.admin.get(ConfigMap, "other", "team")
    assert len(looks) == 2


REFUSALS = [
    # (name of the object that is asked for, namespace, whether it is told)
    ("Not_A_Name", "team", True),
    ("fine", "ending", False),
    ("fine", "team", False),
]


@pytest.mark.virtual
@pytest.mark.parametrize(("name", "namespace", "told"), REFUSALS)
async def test_a_create_refused_for_good_is_written_down_and_announced(name, namespace, told):
    async with setting() as made:
        ending = Namespace(metadata={"name": "ending", "finalizers": ["example.com/stay"]})
        await made.admin.create(ending)
        await made.admin.delete(Namespace, "ending")

        def reconcile(view, key):
            parent = view.get(Namespace, key)
            if key != TEAM or parent is None or view.list(ConfigMap, namespace):
                return []

            def refused(error: str) -> Update | None:
                changed = copy_of(parent)
                changed.metadata.annotations["refused"] = error
                return None if parent.metadata.annotations else Update(changed)

            announced = Announced(parent, "Made", "{name}", "NotMade", "no {name}: {error}")
            wanted = ConfigMap(metadata={"name": name, "namespace": namespace})
            return [Create(wanted, announced=announced, if_refused=refused)]

        await made.run(
            ControllerSpec(name="refused", for_=Namespace, reconcile=reconcile, reads=(ConfigMap,))
        )
        await clock.sleep(30)
        team = await made.admin.get(Namespace, "team")
        events = {event.reason: event for event in (await made.admin.list(Event)).items}
    assert ("refused" in team.metadata.annotations) == told
    assert ("NotMade" in events) == told
    assert ("Made" in events) == (not told and namespace == "team")
    if told:
        text = team.metadata.annotations["refused"]
        assert text.startswith(f'ConfigMap "{name}" is invalid: metadata.name: ')
        assert events["NotMade"].message == f"no {name}: {text}"
        assert events["NotMade"].type == "Warning"


@pytest.mark.virtual
async def test_one_keys_failure_waits_longer_each_time_and_stops_no_other():
    async with setting() as made:
        tries, others = [], set()

        def reconcile(view, key):
            if key == TEAM:
                tries.append(clock.now_s())
                raise ValueError("a bug")
            others.add(key.name)
            return []

        await made.run(ControllerSpec(name="buggy", for_=Namespace, reconcile=reconcile, workers=1))
        await clock.sleep(600)
    waits = [later - earlier for earlier, later in pairwise(tries)]
    assert waits[-1] == pytest.approx(63, abs=4)
    assert 15 < len(tries) < 30
    assert {"default", "kube-system"} <= others


@pytest.mark.virtual
async def test_it_looks_again_when_it_said_so_and_not_before():
    async with setting() as made:
        looks = []

        def reconcile(view, key):
            if key == TEAM:
                looks.append(view.now_s)
            return [RequeueAfter(60.0)]

        await made.run(ControllerSpec(name="clock", for_=Namespace, reconcile=reconcile))
        await clock.sleep(300)
    assert {round(later - earlier) for earlier, later in pairwise(looks)} == {60}
    assert len(looks) in (5, 6)


@pytest.mark.virtual
async def test_a_broken_invariant_ends_the_process():
    def reconcile(view, key):
        raise AssertionError("impossible")

    async def work():
        async with setting() as made:
            await made.run(ControllerSpec(name="broken", for_=Namespace, reconcile=reconcile))
            await clock.sleep(60)

    with pytest.raises(BaseExceptionGroup) as caught:
        await work()
    assert caught.group_contains(AssertionError, match="impossible")
