"""What /metrics says of open watches, whichever way they came in and however they end."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import grpc
import pytest

from podyard.api import resources
from podyard.api.types import ConfigMap, ListOptions, rpc
from podyard.client.client import rpc_class
from tests.component.apiserver.served import Served

pytestmark = pytest.mark.asyncio(loop_scope="session")

_SETTLE_S = 30.0
_NAMES = "/api/v1/namespaces/default/configmaps"
_ONE = "metadata.name%3Dx"


async def open_watches(served: Served) -> dict[str, int]:
    """Scope -> open watches of ConfigMaps."""
    async with served.session.get("/metrics") as answer:
        lines = [line for line in (await answer.text()).splitlines() if not line.startswith("#")]
    found = {}
    for line in lines:
        if line.startswith("apiserver_longrunning_requests{") and 'resource="configmaps"' in line:
            assert 'verb="WATCH"' in line
            assert 'component="apiserver",group=""' in line
            scope = line.partition('scope="')[2].partition('"')[0]
            found[scope] = int(float(line.rpartition(" ")[2]))
    return found


async def settle(served: Served, wanted: dict[str, int]) -> None:
    async with asyncio.timeout(_SETTLE_S):
        while await open_watches(served) != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_watches_are_counted_until_their_readers_go(served: Served) -> None:
    none = {"cluster": 0, "namespace": 0, "resource": 0}
    path = "/podyard.core.v1.ConfigMapService/Watch"
    batch = rpc_class(resources.by_message(ConfigMap), "WatchBatch")
    call = served.channel.unary_stream(
        path, request_serializer=rpc.ListRequest.SerializeToString, response_deserializer=batch.FromString
    )
    async with AsyncExitStack() as stack:
        for url in (
            "/api/v1/configmaps?watch=1",
            f"{_NAMES}?watch=1",
            f"{_NAMES}?watch=1&fieldSelector={_ONE}",
        ):
            await stack.enter_async_context(served.session.get(url))
        options = ListOptions(allowWatchBookmarks=True)
        typed: grpc.aio.UnaryStreamCall = call(rpc.ListRequest(namespace="default", options=options))
        await settle(served, {"cluster": 1, "namespace": 2, "resource": 1})
        typed.cancel()
        await settle(served, {"cluster": 1, "namespace": 1, "resource": 1})
    await settle(served, none)
    # One that ends by itself.
    async with served.session.get(f"{_NAMES}?watch=1&timeoutSeconds=1") as answer:
        await answer.read()
    await settle(served, none)
