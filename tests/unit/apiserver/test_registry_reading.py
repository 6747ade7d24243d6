"""Lists and watches: resource versions, continue tokens, selectors, initial events, their errors."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from google.protobuf.message import Message as AnyMessage

from apiserver.registry import Frame, Registry, build_cache
from apiserver.registry_options import ContinueToken, decode_continue, encode_continue
from apiserver.store.base import StoreUnavailable
from apiserver.store.memory import MemoryStore
from podyard.api import errors, resources
from podyard.api.types import (
    Binding,
    ConfigMap,
    Event,
    EventsV1Event,
    ListOptions,
    Namespace,
    Node,
    Pod,
    meta_v1,
)
from podyard.base import clock
from tests.unit.apiserver.registry_api import CONTEXT, Api, pod, refused

pytestmark = pytest.mark.virtual


def config_map(name: str, **labels: str) -> ConfigMap:
    return ConfigMap(metadata={"name": name, "namespace": "default", "labels": labels})


async def take(stream: Any, events: int) -> list[Frame]:
    frames: list[Frame] = []
    while sum(len(frame.events) for frame in frames) < events:
        frames.append(await anext(stream))
    return frames


def brief(frames: list[Frame]) -> list[tuple[str, str]]:
    return [(kind, item.name) for frame in frames for kind, item in frame.events]


async def test_get_by_resource_version(api: Api) -> None:
    made = await api.create(config_map("a"))
    assert (await api.get(ConfigMap, "a", version=str(made.revision))).revision == made.revision
    assert (await api.get(ConfigMap, "a", version="0")).revision == made.revision
    late = await refused(api.get(ConfigMap, "a", version=str(made.revision + 100)))
    assert isinstance(late, errors.Timeout)
    assert late.message == (
        f"Timeout: Too large resource version: {made.revision + 100}, current: {made.revision}"
    )
    assert late.causes[0].reason == "ResourceVersionTooLarge"
    assert late.retry_after_s == 1
    bad = await refused(api.get(ConfigMap, "a", version="x"))
    assert (bad.code, bad.message) == (
        500,
        'resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax',
    )


async def test_list_by_resource_version(api: Api) -> None:
    first = await api.create(config_map("a"))
    second = await api.create(config_map("b"))
    exact = await api.list(ConfigMap, resourceVersion=str(first.revision), resourceVersionMatch="Exact")
    assert [item.name for item in exact.items] == ["a"]
    assert exact.resource_version == str(first.revision)
    newer = await api.list(
        ConfigMap, resourceVersion=str(first.revision), resourceVersionMatch="NotOlderThan"
    )
    assert [item.name for item in newer.items] == ["a", "b"]
    # With a limit and no match the revision is exact.
    paged = await api.list(ConfigMap, resourceVersion=str(first.revision), limit=5)
    assert [item.name for item in paged.items] == ["a"]
    anything = await api.list(ConfigMap, resourceVersion="0", limit=1)
    assert [item.name for item in anything.items] == ["a", "b"]
    assert anything.continue_token == ""
    late = await refused(
        api.list(ConfigMap, resourceVersion=str(second.revision + 100), resourceVersionMatch="NotOlderThan")
    )
    assert isinstance(late, errors.Timeout)
    far = await refused(
        api.list(ConfigMap, resourceVersion=str(second.revision + 100), resourceVersionMatch="Exact")
    )
    assert isinstance(far, errors.Timeout)
    await api.store.compact(second.revision)
    old = await refused(
        api.list(ConfigMap, resourceVersion=str(first.revision), resourceVersionMatch="Exact")
    )
    assert (old.code, old.message) == (410, "The resourceVersion for the provided list is too old.")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"resourceVersionMatch": "Exact"}, "resourceVersionMatch"),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, "resourceVersionMatch"),
        ({"resourceVersionMatch": "Odd", "resourceVersion": "1"}, "resourceVersionMatch"),
        ({"sendInitialEvents": True}, "sendInitialEvents"),
    ],
)
async def test_list_options_without_meaning(api: Api, options: dict[str, Any], field: str) -> None:
    error = await refused(api.list(ConfigMap, **options))
    assert isinstance(error, errors.Invalid)
    assert error.message.startswith(f'ListOptions.meta.k8s.io "" is invalid: {field}: ')


@pytest.mark.parametrize(
    "options",
    [
        {"sendInitialEvents": True},
        {"resourceVersionMatch": "NotOlderThan"},
        {"sendInitialEvents": True, "resourceVersionMatch": "Exact"},
    ],
)
async def test_watch_options_without_meaning(api: Api, options: dict[str, Any]) -> None:
    # Refused at once, before a stream begins.
    with pytest.raises(errors.Invalid):
        api.watch(ConfigMap, **options)


async def test_selectors_that_do_not_parse(api: Api) -> None:
    assert isinstance(await refused(api.list(ConfigMap, labelSelector="a in (")), errors.BadRequest)
    unknown = await refused(api.list(Pod, fieldSelector="spec.colour=red"))
    assert (unknown.code, unknown.message) == (400, "field label not supported: spec.colour")
    with pytest.raises(errors.BadRequest):
        api.watch(Pod, fieldSelector="spec.colour=red")


async def test_pods_by_node_and_phase(api: Api) -> None:
    for name, node in (("a", "n1"), ("b", "n2"), ("c", "n1")):
        obj = pod(name)
        obj.spec.nodeName = node
        await api.create(obj)
    assert [item.name for item in (await api.list(Pod, fieldSelector="spec.nodeName=n1")).items] == ["a", "c"]
    both = await api.list(Pod, fieldSelector="spec.nodeName=n1,metadata.name=c")
    assert [item.name for item in both.items] == ["c"]
    other = await api.list(Pod, namespace="kube-system", fieldSelector="spec.nodeName=n1")
    assert other.items == []
    unlike = await api.list(Pod, fieldSelector="spec.nodeName!=n1,status.phase=Pending")
    assert [item.name for item in unlike.items] == ["b"]
    assert [item.name for item in (await api.list(Pod, fieldSelector="metadata.name=b")).items] == ["b"]


async def test_pages_with_a_selector(api: Api) -> None:
    for index in range(20):
        await api.create(config_map(f"m{index:02}", odd=str(index % 2)))
    found: list[str] = []
    token = ""
    while True:
        page = await api.list(ConfigMap, labelSelector="odd=1", limit=3, **{"continue": token})
        found += [item.name for item in page.items]
        assert page.remaining is None
        token = page.continue_token
        if not token:
            break
        assert len(page.items) == 3
    assert found == [f"m{index:02}" for index in range(1, 20, 2)]


async def test_an_expired_continue_token_offers_a_way_on(api: Api) -> None:
    for index in range(5):
        await api.create(config_map(f"m{index}"))
    page = await api.list(ConfigMap, limit=2)
    assert page.remaining == 3
    await api.create(config_map("m5"))
    await api.store.compact(await api.store.current_revision())
    error = await refused(api.list(ConfigMap, limit=2, **{"continue": page.continue_token}))
    assert isinstance(error, errors.Expired)
    assert error.message.startswith("The provided continue parameter is too old to display a consistent")
    status = error.to_status()
    token = getattr(status.metadata, "continue")
    rest = await api.list(ConfigMap, limit=10, **{"continue": token})
    assert [item.name for item in rest.items] == ["m2", "m3", "m4", "m5"]


@pytest.mark.parametrize(
    "token",
    [
        "!",
        "bm9uZQ",
        encode_continue(ContinueToken(0, "/registry/configmaps/a"), "/registry/configmaps/"),
        encode_continue(ContinueToken(5, "/registry/configmaps/../secrets/x"), "/registry/configmaps/"),
    ],
)
async def test_continue_tokens_that_are_none(api: Api, token: str) -> None:
    error = await refused(api.list(ConfigMap, **{"continue": token}))
    assert isinstance(error, errors.BadRequest)
    assert error.message.startswith("invalid continue token: continue key is not valid")


async def test_continue_with_a_resource_version(api: Api) -> None:
    await api.create(config_map("a"))
    await api.create(config_map("b"))
    page = await api.list(ConfigMap, limit=1)
    error = await refused(api.list(ConfigMap, resourceVersion="5", **{"continue": page.continue_token}))
    assert error.message == "specifying resource version is not allowed when using continue"


def test_continue_tokens_keep_their_place() -> None:
    token = ContinueToken(7, "/registry/pods/default/web")
    assert decode_continue(encode_continue(token, "/registry/pods/"), "/registry/pods/") == token


async def test_watch_without_a_version_starts_with_what_is_there(api: Api) -> None:
    await api.create(config_map("b"))
    await api.create(config_map("a"))
    for version in ("", "0"):
        stream = api.watch(ConfigMap, resourceVersion=version)
        assert brief(await take(stream, 2)) == [("ADDED", "a"), ("ADDED", "b")]
        await stream.aclose()


async def test_watch_list(api: Api) -> None:
    """sendInitialEvents: the state, the bookmark that ends it, then the changes."""
    await api.create(config_map("a"))
    stream = api.watch(
        ConfigMap,
        sendInitialEvents=True,
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks=True,
    )
    initial, end = await anext(stream), await anext(stream)
    assert brief([initial]) == [("ADDED", "a")]
    assert (end.events, end.bookmark, end.initial_events_end) == ([], True, True)
    assert end.revision == api.registry.cache.revision
    await api.create(config_map("b"))
    assert brief(await take(stream, 1)) == [("ADDED", "b")]
    await stream.aclose()
    only_new = api.watch(ConfigMap, sendInitialEvents=False, resourceVersionMatch="NotOlderThan")
    waiting = asyncio.ensure_future(anext(only_new))
    await clock.real_sleep(1)
    await api.create(config_map("c"))
    assert brief([await waiting]) == [("ADDED", "c")]
    await only_new.aclose()


async def test_watch_ends_after_its_timeout_with_a_bookmark(api: Api) -> None:
    began = clock.now_s()
    version = str(api.registry.cache.revision)
    stream = api.watch(ConfigMap, resourceVersion=version, timeoutSeconds=10, allowWatchBookmarks=True)
    frames = [frame async for frame in stream]
    assert [(frame.bookmark, frame.revision) for frame in frames] == [(True, int(version))]
    assert clock.now_s() - began == pytest.approx(10, abs=0.1)


async def test_watch_from_too_old_a_version(api: Api) -> None:
    """A server that has just started knows no history from before the compaction."""
    first = await api.create(config_map("a"))
    second = await api.create(config_map("b"))
    await api.store.compact(second.revision)
    cache = build_cache(api.store)
    running = asyncio.ensure_future(cache.run())
    await cache.wait_ready()
    late = Registry(api.store, cache)
    row, options = resources.by_message(ConfigMap), ListOptions(resourceVersion=str(first.revision))
    with pytest.raises(errors.Expired) as expired:
        await anext(late.watch(CONTEXT, row, "", options))
    assert expired.value.message == f"too old resource version: {first.revision} ({second.revision})"
    assert expired.value.code == 410
    running.cancel()
    await asyncio.wait({running})


async def test_watch_with_selectors(api: Api) -> None:
    version = str(api.registry.cache.revision)
    stream = api.watch(Pod, fieldSelector="spec.nodeName=n1", resourceVersion=version)
    await api.create(pod("a"))
    await api.patch(Pod, "a", b'{"metadata":{"labels":{"x":"y"}}}')
    binding = Binding(metadata={"name": "a"}, target={"kind": "Node", "name": "n1"})
    await api.registry.bind(CONTEXT, "default", "a", binding, meta_v1.CreateOptions())
    assert brief(await take(stream, 1)) == [("ADDED", "a")]
    await stream.aclose()


async def test_several_kinds_in_one_stream(api: Api) -> None:
    rows = [resources.by_message(kind) for kind in (Pod, ConfigMap, Node)]
    version = str(api.registry.cache.revision)
    stream = api.registry.watch_many(CONTEXT, [(row, "", ListOptions()) for row in rows], version)
    await api.create(pod("a"))
    await api.create(config_map("b"))
    await api.create(config_map("c"))
    await api.create(Node(metadata={"name": "d"}))
    seen: list[tuple[str, str]] = []
    last = 0
    while len(seen) < 4:
        row, frame = await anext(stream)  # type: ignore[call-overload]
        seen += [(row.kind, item.name) for _, item in frame.events]
        if frame.revision:
            assert frame.revision > last
            last = frame.revision
    assert seen == [("Pod", "a"), ("ConfigMap", "b"), ("ConfigMap", "c"), ("Node", "d")]
    await stream.aclose()  # type: ignore[attr-defined]
    initial = api.registry.watch_many(
        CONTEXT, [(row, "", ListOptions()) for row in rows], "", send_initial_events=True
    )
    names: list[str] = []
    async for _, frame in initial:
        names += [item.name for _, item in frame.events]
        if frame.initial_events_end:
            break
    assert sorted(names) == ["a", "b", "c", "d"]
    await initial.aclose()  # type: ignore[attr-defined]


async def test_events_are_one_object_in_two_versions(api: Api) -> None:
    body = {
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "web", "namespace": "default"},
        "reason": "Started",
        "message": "m",
        "type": "Normal",
    }
    made = await api.create(Event(**body))
    view = await api.get(EventsV1Event, "e")
    assert view.revision == made.revision
    assert (view.message.note, view.message.regarding.name) == ("m", "web")
    value = orjson.loads(view.json)
    assert (value["apiVersion"], value["kind"], value["note"]) == ("events.k8s.io/v1", "Event", "m")
    parsed: AnyMessage = EventsV1Event.FromString(view.raw)
    assert parsed == view.message
    assert view is await api.get(EventsV1Event, "e")
    patched = await api.patch(EventsV1Event, "e", b'{"metadata":{"labels":{"a":"b"}}}')
    assert patched.message.regarding.name == "web"
    assert (await api.get(Event, "e")).message.metadata.labels["a"] == "b"
    by_field = await api.list(EventsV1Event, fieldSelector="regarding.name=web")
    assert [item.message.note for item in by_field.items] == ["m"]


async def test_a_store_that_is_away(api: Api) -> None:
    await api.create(config_map("a"))
    await api.list(ConfigMap)
    await api.store.close()
    with pytest.raises(StoreUnavailable):
        await api.store.current_revision()
    error = await refused(api.list(ConfigMap))
    assert (error.code, error.status_reason) == (503, "ServiceUnavailable")
    assert [item.name for item in (await api.list(ConfigMap, resourceVersion="0")).items] == ["a"]


async def test_before_the_first_listing() -> None:
    store = MemoryStore()
    registry = Registry(store, build_cache(store))
    row = resources.by_message(Namespace)
    error = await refused(registry.list(CONTEXT, row, "", ListOptions()))
    assert (error.code, error.message, error.retry_after_s) == (429, "storage is (re)initializing", 1)
