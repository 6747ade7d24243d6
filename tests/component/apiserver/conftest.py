"""One API server over each store for the whole session; tests take names of their own."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from apiserver.store.etcd import EtcdStore
from apiserver.store.memory import MemoryStore
from tests.component.apiserver.served import Certificates, Served, make_certificates, serve
from tests.component.apiserver.stream_world import World, streaming_world

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("pki"))


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=["memory", "etcd"])
async def served(request: pytest.FixtureRequest, certificates: Certificates) -> AsyncIterator[Served]:
    """The real listeners over either store."""
    if request.param == "memory":
        store: MemoryStore | EtcdStore = MemoryStore()
    else:
        store = EtcdStore([request.getfixturevalue("etcd").endpoint])
    async with serve(store, certificates) as running:
        yield running
        # The server learns within moments that a client has gone; then nothing may be left of it.
        async with asyncio.timeout(30):
            while running.core.cache.watcher_count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest_asyncio.fixture
async def world(certificates: Certificates) -> AsyncIterator[World]:
    """A pod with streams."""
    async with streaming_world(certificates) as running:
        yield running


@pytest.fixture
def unique() -> str:
    """A part of names that no other test of the session uses."""
    return f"t{next(_numbers)}"
