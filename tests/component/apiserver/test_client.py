"""Our own client over real gRPC: typed errors, another endpoint, informers that miss nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from apiserver.store.memory import MemoryStore
from podyard.api import errors
from podyard.api.types import ConfigMap, Namespace, Pod, copy_of, rpc
from podyard.client.client import JSON_PATCH, STRATEGIC_PATCH, Client, error_of
from podyard.client.grpc_transport import GrpcTransport
from podyard.client.informer import Informer
from tests.component.apiserver.served import Certificates, Served, serve

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Shared(MemoryStore):
    """A store that outlives the servers before it."""

    async def close(self) -> None:
        pass


class Log:
    """What a handler of an informer is told, object by object."""

    def __init__(self) -> None:
        self.states: dict[str, list[int]] = {}

    def __call__(self, old: Any, new: Any) -> None:
        name = (new or old).metadata.name
        known = self.states.setdefault(name, [])
        assert (known[-1] if known else 0) == (int(old.metadata.resourceVersion) if old else 0)
        known.append(int(new.metadata.resourceVersion) if new else 0)


def config_map(name: str, value: str = "1") -> ConfigMap:
    return ConfigMap(metadata={"name": name, "namespace": "default"}, data={"a": value})


@asynccontextmanager
async def client_of(*served: Served) -> AsyncIterator[Client]:
    endpoints = [f"localhost:{one.grpc_port}" for one in served]
    transport = GrpcTransport(endpoints, served[0].credentials)
    yield Client(transport, "tester")
    await transport.close()


@asynccontextmanager
async def following(informer: Informer[Any]) -> AsyncIterator[None]:
    running = asyncio.ensure_future(informer.run())
    try:
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - states of the product
            await asyncio.sleep(0.01)


async def again(work: Callable[[], Any]) -> Any:
    """As a caller that works from what it watches: a write that may have failed is asked for again."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await work()
            except errors.Unavailable:
                await asyncio.sleep(0.05)


async def test_verbs_and_typed_errors(served: Served, unique: str) -> None:
    async with client_of(served) as client:
        made = await client.create(config_map(unique))
        assert (await client.get(ConfigMap, unique, "default")).metadata.uid == made.metadata.uid
        with pytest.raises(errors.AlreadyExists):
            await client.create(config_map(unique))
        changed = copy_of(made)
        changed.data["b"] = "2"
        updated = await client.update(changed)
        with pytest.raises(errors.Conflict, match="the object has been modified"):
            await client.update(changed)
        patched = await client.patch(ConfigMap, unique, "default", body={"data": {"a": None}})
        assert dict(patched.data) == {"b": "2"}
        body = [{"op": "test", "path": "/data/b", "value": "3"}]
        with pytest.raises(errors.Invalid):
            await client.patch(ConfigMap, unique, "default", body=body, patch_type=JSON_PATCH)
        await client.patch(
            ConfigMap, unique, "default", body={"data": {"c": "3"}}, patch_type=STRATEGIC_PATCH
        )
        with pytest.raises(errors.Conflict):
            await client.delete(
                ConfigMap, unique, "default", resource_version=updated.metadata.resourceVersion
            )
        await client.delete(ConfigMap, unique, "default", uid=made.metadata.uid, propagation="Background")
        with pytest.raises(errors.NotFound, match=f'configmaps "{unique}" not found'):
            await client.get(ConfigMap, unique, "default")
        with pytest.raises(errors.Invalid) as invalid:
            await client.create(Namespace(metadata={"name": "Bad!"}))
        assert "metadata.name" in [cause.field for cause in invalid.value.causes]


async def test_bulk_writes_stand_alone(served: Served, unique: str) -> None:
    create = rpc.BulkOperation.CREATE
    operations = [
        rpc.BulkOperation(
            verb=create, version="v1", resource="configmaps", namespace="default",
            object=config_map(name).SerializeToString(),
        )
        for name in (unique, "Bad!", unique, f"{unique}-too")
    ]  # fmt: skip
    async with client_of(served) as client:
        results = await client.bulk(operations)
        kinds = [type(error_of(result)) for result in results]
        assert kinds[1] is errors.Invalid
        # Two of one name in one request: one of them wins.
        assert sorted([kinds[0].__name__, kinds[2].__name__]) == ["AlreadyExists", "NoneType"]
        assert kinds[3] is type(None)
        many = [operations[0]] * 1001
        with pytest.raises(errors.BadRequest, match="at most 1000"):
            await client.bulk(many)


async def test_a_local_transport_answers_as_grpc_does(served: Served, unique: str) -> None:
    local = Client(served.core.transport("kubernetes-admin", "system:masters"))
    async with client_of(served) as client:
        made = await client.create(config_map(unique))
        assert await local.get(ConfigMap, unique, "default") == made
        for call in (
            lambda one: one.get(ConfigMap, "none", "default"),
            lambda one: one.create(config_map(unique)),
            lambda one: one.create(Pod(metadata={"name": "Bad!", "namespace": "default"})),
            lambda one: one.list(ConfigMap, label_selector="a===b"),
            lambda one: one.delete(ConfigMap, unique, "default", uid="other"),
        ):
            failures = []
            for one in (client, local):
                with pytest.raises(errors.ApiError) as failure:
                    await call(one)
                failures.append(failure.value.to_status())
            assert failures[0] == failures[1]


async def test_another_server_takes_over(certificates: Certificates) -> None:
    store = Shared()
    async with AsyncExitStack() as both:
        first = AsyncExitStack()
        one = await first.enter_async_context(serve(store, certificates))
        two = await both.enter_async_context(serve(store, certificates))
        client = await both.enter_async_context(client_of(one, two))
        informer, log = Informer(client, ConfigMap, namespace="default"), Log()
        informer.on_change(log)
        await both.enter_async_context(following(informer))
        await client.create(config_map("before"))
        await first.aclose()
        # Reads go on as if nothing had been; a write is the caller's to repeat.
        assert (await client.get(ConfigMap, "before", "default")).data["a"] == "1"
        made = await again(lambda: client.create(config_map("after")))
        changed = await client.patch(ConfigMap, "before", "default", body={"data": {"a": "2"}})
        async with asyncio.timeout(20):
            await informer.wait_for(int(changed.metadata.resourceVersion))
        assert log.states["after"] == [int(made.metadata.resourceVersion)]
        assert len(log.states["before"]) == 2


async def test_an_informer_starts_over_when_history_is_gone(certificates: Certificates) -> None:
    store = Shared()
    async with AsyncExitStack() as rest:
        before = AsyncExitStack()
        served = await before.enter_async_context(serve(store, certificates))
        client = await rest.enter_async_context(client_of(served))
        for name in ("kept", "changed", "removed", "replaced"):
            await client.create(config_map(name))
        informer, log = Informer(client, ConfigMap, namespace="default"), Log()
        informer.on_change(log)
        await rest.enter_async_context(following(informer))
        await until(lambda: len(informer) == 4)
        await before.aclose()

        # What happens while the informer is cut off, and is compacted away.
        async with serve(store, certificates) as other, client_of(other) as elsewhere:
            await elsewhere.patch(ConfigMap, "changed", "default", body={"data": {"a": "2"}})
            await elsewhere.delete(ConfigMap, "removed", "default")
            await elsewhere.delete(ConfigMap, "replaced", "default")
            await elsewhere.create(config_map("replaced", "2"))
            await elsewhere.create(config_map("new"))
        await store.compact(await store.current_revision())
        async with serve(store, certificates, grpc_port=served.grpc_port):
            await until(lambda: log.states.get("removed", [1])[-1] == 0)
            assert sorted(obj.metadata.name for obj in informer) == ["changed", "kept", "new", "replaced"]
            assert {obj.metadata.name: obj.data["a"] for obj in informer} == {
                "changed": "2", "kept": "1", "new": "1", "replaced": "2"
            }  # fmt: skip
            assert len(log.states["kept"]) == 1
