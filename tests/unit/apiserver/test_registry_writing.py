"""Writes: names, races, stale caches, patches under contention, graceful deletion, propagation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from apiserver.registry_deleting import finalizers_for
from podyard.api import errors, resources
from podyard.api.types import (
    Binding,
    ConfigMap,
    DeleteOptions,
    ListOptions,
    Namespace,
    Node,
    Pod,
    PriorityClass,
    Service,
    copy_of,
    meta_v1,
)
from podyard.base import clock
from tests.unit.apiserver.registry_api import CONTEXT, Api, pod, refused

pytestmark = pytest.mark.virtual


def config_map(name: str = "a", **metadata: Any) -> ConfigMap:
    return ConfigMap(metadata={"name": name, "namespace": "default", **metadata})


async def test_generated_names(api: Api) -> None:
    made = [
        await api.create(ConfigMap(metadata={"generateName": "job-", "namespace": "default"}))
        for _ in range(20)
    ]
    names = {item.name for item in made}
    assert len(names) == 20
    assert all(len(name) == len("job-") + 5 and name.startswith("job-") for name in names)
    long = await api.create(ConfigMap(metadata={"generateName": "x" * 80, "namespace": "default"}))
    assert len(long.name) == 63


async def test_names_that_can_not_be(api: Api) -> None:
    nameless = await refused(api.create(ConfigMap(metadata={"namespace": "default"})))
    assert isinstance(nameless, errors.Invalid)
    assert nameless.causes[0].message == "Required value: name or generateName is required"
    assert isinstance(await refused(api.create(config_map("a/b"))), errors.Invalid)
    assert isinstance(await refused(api.create(config_map(".."))), errors.Invalid)


async def test_namespaces_of_path_and_object(api: Api) -> None:
    error = await refused(api.create(config_map(), namespace="other"))
    assert error.message == (
        "the namespace of the provided object does not match the namespace sent on the request"
    )
    made = await api.create(ConfigMap(metadata={"name": "b"}), namespace="default")
    assert made.namespace == "default"
    assert made.message.metadata.namespace == "default"
    assert isinstance(await refused(api.create(ConfigMap(metadata={"name": "b"}))), errors.BadRequest)
    node = await api.create(Node(metadata={"name": "n", "namespace": "odd"}))
    assert node.message.metadata.namespace == ""


async def test_updates_name_what_they_mean(api: Api) -> None:
    await api.create(config_map())
    wrong = await refused(api.update(config_map("b"), name="a"))
    assert wrong.message == "the name of the object (b) does not match the name on the URL (a)"
    nameless = await refused(api.update(ConfigMap(metadata={"namespace": "default"}), name="a"))
    assert nameless.message == (
        "the name of the object (a based on URL) was undeterminable: name must be provided"
    )


async def test_what_a_client_may_not_set(api: Api) -> None:
    obj = config_map(uid="mine", generation=7)
    obj.metadata.creationTimestamp.seconds = 1
    obj.metadata.deletionTimestamp.seconds = 1
    obj.metadata.deletionGracePeriodSeconds = 1
    made = (await api.create(obj)).message.metadata
    assert made.uid not in ("", "mine")
    assert made.creationTimestamp.seconds > 1
    assert not made.HasField("deletionTimestamp")
    assert not made.HasField("deletionGracePeriodSeconds")
    versioned = await refused(api.create(config_map("b", resourceVersion="5")))
    assert (versioned.code, versioned.message) == (
        500,
        "resourceVersion should not be set on objects to be created",
    )


async def test_an_update_of_another_object_of_the_name(api: Api) -> None:
    made = await api.create(config_map())
    obj = config_map(uid="other")
    error = await refused(api.update(obj))
    assert isinstance(error, errors.Conflict)
    assert error.message.endswith(
        f"Precondition failed: UID in precondition: other, UID in object meta: {made.message.metadata.uid}"
    )


async def test_creating_what_is_being_deleted(api: Api) -> None:
    await api.create(config_map(finalizers=["a/b"]))
    await api.delete(ConfigMap, "a")
    error = await refused(api.create(config_map()))
    assert error.message == 'object is being deleted: configmaps "a" already exists'


async def test_namespaces_that_are_missing_or_going(api: Api) -> None:
    missing = await refused(api.create(ConfigMap(metadata={"name": "a", "namespace": "nope"})))
    assert (missing.code, missing.message) == (404, 'namespaces "nope" not found')
    # Just made: the cache may not have it yet.
    await api.create(Namespace(metadata={"name": "new"}))
    await api.create(ConfigMap(metadata={"name": "a", "namespace": "new"}))
    going = await api.delete(Namespace, "new")
    assert going.object is not None
    await api.registry.cache.fresh()
    error = await refused(api.create(ConfigMap(metadata={"name": "b", "namespace": "new"})))
    assert (error.code, error.causes[0].reason) == (403, "NamespaceTerminating")
    namespace = copy_of(going.object.message)
    del namespace.spec.finalizers[:]
    await api.update(namespace, subresource="finalize")
    assert isinstance(await refused(api.get(Namespace, "new")), errors.NotFound)


async def test_concurrent_patches_all_count(api: Api) -> None:
    await api.create(config_map())

    async def one(index: int) -> None:
        await api.patch(ConfigMap, "a", b'{"data":{"k%d":"v"}}' % index)

    async with asyncio.TaskGroup() as group:
        for index in range(30):
            group.create_task(one(index))
    found = await api.get(ConfigMap, "a")
    assert sorted(found.message.data) == sorted(f"k{index}" for index in range(30))


async def test_a_patch_that_names_a_version_is_not_retried(api: Api) -> None:
    made = await api.create(config_map())
    await api.patch(ConfigMap, "a", b'{"data":{"a":"b"}}')
    body = b'{"metadata":{"resourceVersion":"%d"},"data":{"c":"d"}}' % made.revision
    assert isinstance(await refused(api.patch(ConfigMap, "a", body)), errors.Conflict)


async def test_a_patch_that_changes_nothing_writes_nothing(api: Api) -> None:
    made = await api.create(pod())
    same = await api.patch(
        Pod, "web", b'{"spec":{"containers":[{"name":"main","image":"nginx"}]}}', how="strategic"
    )
    assert same.revision == made.revision


async def test_fields_that_a_patch_invents(api: Api) -> None:
    await api.create(config_map())
    body = b'{"datum":{"a":"b"},"data":{"x":"y"}}'
    warnings: list[str] = []
    await api.patch(ConfigMap, "a", body, warnings=warnings, fieldValidation="Warn")
    assert warnings == ['unknown field "datum"']
    error = await refused(api.patch(ConfigMap, "a", body, fieldValidation="Strict"))
    assert isinstance(error, errors.Invalid)
    assert 'unknown field "datum"' in error.message


async def test_a_write_right_after_another_sees_it(api: Api) -> None:
    """No wait between the writes: the cache is always behind."""
    item = await api.create(config_map())
    for index in range(10):
        obj = copy_of(item.message)
        obj.data["n"] = str(index)
        item, _ = await api.update(obj)
    await api.delete(ConfigMap, "a", preconditions={"resourceVersion": str(item.revision)})
    await api.create(config_map())


async def behind(api: Api) -> Any:
    """An object as the cache has it, while the store has another state of it already."""
    made = await api.create(config_map())
    seen = (await api.get(ConfigMap, "a")).message
    assert seen.metadata.resourceVersion == str(made.revision)
    changed = copy_of(seen)
    changed.data["n"] = "1"
    await api.update(changed)
    return seen


async def test_an_update_that_changes_nothing_of_an_old_state_is_a_conflict(api: Api) -> None:
    seen = await behind(api)
    assert isinstance(await refused(api.update(copy_of(seen))), errors.Conflict)
    assert (await api.get(ConfigMap, "a")).message.data["n"] == "1"


async def test_a_dry_run_on_an_old_state_is_a_conflict(api: Api) -> None:
    seen = await behind(api)
    seen.metadata.labels["more"] = "yes"
    assert isinstance(await refused(api.update(seen, dryRun=["All"])), errors.Conflict)


@pytest.mark.parametrize(
    ("how", "body"),
    [
        ("merge", b'{"data":null}'),
        ("strategic", b'{"data":null}'),
        ("json", b'[{"op":"add","path":"/data","value":{}}]'),
    ],
)
async def test_a_patch_that_would_change_nothing_of_an_old_state_is_applied_to_the_new(
    api: Api, how: str, body: bytes
) -> None:
    await behind(api)
    patched = await api.patch(ConfigMap, "a", body, how=how)
    assert not patched.message.data
    assert not (await api.get(ConfigMap, "a")).message.data


async def test_what_changes_nothing_is_not_written(api: Api) -> None:
    made = await api.create(config_map())
    same, _ = await api.update(copy_of(made.message))
    assert same.revision == made.revision
    assert (await api.patch(ConfigMap, "a", b"{}")).revision == made.revision


async def test_too_large_an_object(api: Api) -> None:
    obj = config_map()
    obj.data["big"] = "x" * 1_000_000
    await api.create(obj)
    other = config_map("b")
    for index in range(2):
        other.binaryData[str(index)] = b"x" * 800_000
    error = await refused(api.create(other))
    assert error.code in (413, 422)


async def test_graceful_deletion_of_a_pod(api: Api) -> None:
    made = await api.create(pod())
    binding = Binding(metadata={"name": "web"}, target={"kind": "Node", "name": "n1"})
    await api.registry.bind(CONTEXT, "default", "web", binding, meta_v1.CreateOptions())
    first = await api.delete(Pod, "web")
    assert first.object is not None
    metadata = first.object.message.metadata
    assert metadata.deletionGracePeriodSeconds == 30
    assert metadata.deletionTimestamp.seconds == int(clock.now_s()) + 30
    again = await api.delete(Pod, "web")
    assert again.object is not None
    assert again.object.revision == first.object.revision
    shorter = await api.delete(Pod, "web", gracePeriodSeconds=5)
    assert shorter.object is not None
    assert shorter.object.message.metadata.deletionGracePeriodSeconds == 5
    stream = api.watch(Pod, resourceVersion=str(shorter.object.revision))
    final = await api.delete(
        Pod, "web", gracePeriodSeconds=0, preconditions={"uid": made.message.metadata.uid}
    )
    assert final.object is not None
    assert final.object.message.metadata.deletionGracePeriodSeconds == 0
    events: list[tuple[str, int]] = []
    while len(events) < 2:
        frame = await anext(stream)
        events += [(kind, item.message.metadata.deletionGracePeriodSeconds) for kind, item in frame.events]
    assert events == [("MODIFIED", 0), ("DELETED", 0)]
    await stream.aclose()
    assert isinstance(await refused(api.get(Pod, "web")), errors.NotFound)


async def test_a_pod_that_nobody_runs_goes_at_once(api: Api) -> None:
    await api.create(pod())
    deleted = await api.delete(Pod, "web")
    assert deleted.object is not None
    assert deleted.object.message.metadata.deletionGracePeriodSeconds == 0
    assert isinstance(await refused(api.get(Pod, "web")), errors.NotFound)


async def test_a_pod_is_bound_once(api: Api) -> None:
    await api.create(pod())
    nodes = [Binding(metadata={"name": "web"}, target={"kind": "Node", "name": f"n{i}"}) for i in range(5)]
    results = await asyncio.gather(
        *(
            api.registry.bind(CONTEXT, "default", "web", binding, meta_v1.CreateOptions())
            for binding in nodes
        ),
        return_exceptions=True,
    )
    lost = [result for result in results if isinstance(result, errors.Conflict)]
    assert len(lost) == 4
    winner = (await api.get(Pod, "web")).message.spec.nodeName
    assert all(error.message.endswith(f'pod web is already assigned to node "{winner}"') for error in lost)


@pytest.mark.parametrize(
    ("options", "finalizers", "expected"),
    [
        ({}, [], []),
        ({"propagationPolicy": "Background"}, ["a/b"], ["a/b"]),
        ({"propagationPolicy": "Foreground"}, ["a/b"], ["a/b", "foregroundDeletion"]),
        ({"propagationPolicy": "Orphan"}, ["foregroundDeletion", "a/b"], ["a/b", "orphan"]),
        ({"propagationPolicy": "Background"}, ["orphan"], []),
        ({"orphanDependents": True}, [], ["orphan"]),
        ({"orphanDependents": False}, ["orphan"], []),
        ({}, ["foregroundDeletion", "a/b"], ["foregroundDeletion", "a/b"]),
    ],
)
def test_propagation_is_finalizers(
    options: dict[str, Any], finalizers: list[str], expected: list[str]
) -> None:
    assert finalizers_for(finalizers, DeleteOptions(**options)) == expected


async def test_foreground_deletion_waits_for_the_collector(api: Api) -> None:
    await api.create(config_map())
    held = await api.delete(ConfigMap, "a", propagationPolicy="Foreground")
    assert held.object is not None
    metadata = held.object.message.metadata
    assert list(metadata.finalizers) == ["foregroundDeletion"]
    assert metadata.HasField("deletionTimestamp")


@pytest.mark.parametrize(
    "options",
    [
        {"propagationPolicy": "Sideways"},
        {"propagationPolicy": "Orphan", "orphanDependents": True},
        {"dryRun": ["Some"]},
    ],
)
async def test_delete_options_without_meaning(api: Api, options: dict[str, Any]) -> None:
    await api.create(config_map())
    error = await refused(api.delete(ConfigMap, "a", **options))
    assert isinstance(error, errors.Invalid)


async def test_delete_collection(api: Api) -> None:
    for index in range(30):
        await api.create(config_map(f"m{index:02}", labels={"odd": str(index % 2)}))
    row = resources.by_message(ConfigMap)
    deleted = await api.registry.delete_collection(
        CONTEXT, row, "default", DeleteOptions(), ListOptions(labelSelector="odd=1")
    )
    assert len(deleted.items) == 15
    left = await api.list(ConfigMap)
    assert [item.name for item in left.items] == [f"m{index:02}" for index in range(0, 30, 2)]


def service(name: str, **spec: Any) -> Service:
    return Service(metadata={"name": name, "namespace": "default"}, spec={"ports": [{"port": 80}], **spec})


async def test_services_get_addresses_of_their_own(api: Api) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(api.create(service(f"s{index}"))) for index in range(20)]
    addresses = [task.result().message.spec.clusterIP for task in tasks]
    assert len(set(addresses)) == 20
    assert all(address.startswith("10.96.") for address in addresses)
    chosen = await api.create(service("chosen", clusterIP="10.96.0.10"))
    assert list(chosen.message.spec.clusterIPs) == ["10.96.0.10"]
    taken = await refused(api.create(service("taken", clusterIP="10.96.0.10")))
    assert isinstance(taken, errors.Invalid)
    assert "failed to allocate IP 10.96.0.10: provided IP is already allocated" in taken.message
    outside = await refused(api.create(service("outside", clusterIP="192.168.0.1")))
    assert "the provided network does not match the current range" in outside.message
    for edge in ("10.96.0.0", "10.96.255.255"):
        refusal = await refused(api.create(service("edge", clusterIP=edge)))
        assert [cause.field for cause in refusal.causes] == ["spec.clusterIPs"]
        assert (
            f"failed to allocate IP {edge}: the provided IP ({edge}) is not in the valid range. "
            "The range of valid IPs is 10.96.0.0/16" in refusal.message
        )
    headless = await api.create(service("headless", clusterIP="None"))
    assert headless.message.spec.clusterIP == "None"
    kept = await api.patch(Service, "s0", b'{"metadata":{"labels":{"a":"b"}}}')
    assert kept.message.spec.clusterIP == addresses[0]


async def test_what_a_service_does_not_get_is_free_at_once(api: Api) -> None:
    def wish(name: str, **spec: Any) -> Service:
        ports = [{"port": 80, "nodePort": 30123}]
        return service(name, **{"type": "NodePort", "clusterIP": "10.96.1.1", "ports": ports, **spec})

    # Invalid, a dry run, a name that is taken, a Service that goes: each leaves nothing behind.
    await refused(api.create(wish("bad", sessionAffinity="Odd")))
    await api.create(wish("dry"), dryRun=["All"])
    await api.create(service("there"))
    assert isinstance(await refused(api.create(wish("there"))), errors.AlreadyExists)
    await api.create(wish("first"))
    await api.delete(Service, "first")
    await api.create(wish("second"))
    assert isinstance(await refused(api.create(wish("third"))), errors.Invalid)
    # So does an update: what it gives back, and what it asked for in vain.
    moved = wish("second", ports=[{"port": 80, "nodePort": 30124}])
    await api.update(moved)
    await api.create(service("third", type="NodePort", ports=[{"port": 80, "nodePort": 30123}]))
    await refused(api.update(wish("second", sessionAffinity="Odd", ports=[{"port": 80, "nodePort": 30125}])))
    await api.create(service("fourth", type="NodePort", ports=[{"port": 80, "nodePort": 30125}]))


async def test_one_of_many_who_ask_for_an_address_gets_it(api: Api) -> None:
    wishes = [api.create(service(f"s{index}", clusterIP="10.96.1.1")) for index in range(10)]
    answers = await asyncio.gather(*wishes, return_exceptions=True)
    refusals = [answer for answer in answers if isinstance(answer, errors.Invalid)]
    assert len(refusals) == 9
    assert all("provided IP is already allocated" in refusal.message for refusal in refusals)


async def test_priority_comes_from_a_class_just_made(api: Api) -> None:
    await api.create(PriorityClass(metadata={"name": "high"}, value=9))
    obj = pod()
    obj.spec.priorityClassName = "high"
    assert (await api.create(obj)).message.spec.priority == 9
    other = pod("other")
    other.spec.priorityClassName = "nope"
    assert isinstance(await refused(api.create(other)), errors.Forbidden)


async def test_generation_counts_changes_of_the_spec(api: Api) -> None:
    made = await api.create(pod())
    assert made.message.metadata.generation == 1
    labelled = await api.patch(Pod, "web", b'{"metadata":{"labels":{"a":"b"}}}')
    assert labelled.message.metadata.generation == 1
    changed = await api.patch(
        Pod, "web", b'{"spec":{"containers":[{"name":"main","image":"nginx:2"}]}}', how="strategic"
    )
    assert changed.message.metadata.generation == 2
