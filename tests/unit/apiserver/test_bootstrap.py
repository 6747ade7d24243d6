"""The system's own objects: there at the start, and there again when someone has deleted them."""

from __future__ import annotations

import pytest

from apiserver.core import ApiCore
from apiserver.store.memory import MemoryStore
from podyard.api import errors
from podyard.api.types import Endpoints, EndpointSlice, PriorityClass, Service
from podyard.base import clock
from podyard.base.run import Background
from podyard.client.client import Client

pytestmark = pytest.mark.virtual

OBJECTS = [
    (Service, "default", "kubernetes"),
    (Endpoints, "default", "kubernetes"),
    (EndpointSlice, "default", "kubernetes"),
    (Service, "kube-system", "kube-dns"),
    (PriorityClass, "", "system-node-critical"),
]


@pytest.fixture
async def client():
    async with Background() as background:
        core = ApiCore(MemoryStore(), address="192.0.2.1")
        core.start(background)
        while not core.bootstrap.done:
            await clock.sleep(0.05)
        yield Client(core.transport("admin", "system:masters"))


@pytest.mark.parametrize(("kind", "namespace", "name"), OBJECTS)
async def test_what_was_deleted_comes_back(client, kind, namespace, name):
    before = await client.get(kind, name, namespace)
    await client.delete(kind, name, namespace)
    with pytest.raises(errors.NotFound):
        await client.get(kind, name, namespace)
    await clock.sleep(12)
    after = await client.get(kind, name, namespace)
    assert after.metadata.uid != before.metadata.uid
    if kind is Service:
        assert after.spec.clusterIP == before.spec.clusterIP


async def test_nothing_is_written_while_all_is_there(client):
    async def versions():
        return [(await client.get(*_at(entry))).metadata.resourceVersion for entry in OBJECTS]

    before = await versions()
    await clock.sleep(60)
    assert await versions() == before


async def test_endpoints_that_were_bent_are_set_right(client):
    slice_ = await client.get(EndpointSlice, "kubernetes", "default")
    slice_.endpoints[0].addresses[0] = "192.0.2.99"
    await client.update(slice_)
    await clock.sleep(12)
    slice_ = await client.get(EndpointSlice, "kubernetes", "default")
    assert list(slice_.endpoints[0].addresses) == ["192.0.2.1"]


def _at(entry):
    kind, namespace, name = entry
    return kind, name, namespace
