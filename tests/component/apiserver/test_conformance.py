"""Every row of the resource table, over every way in, on both stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
import pytest_asyncio

from podyard.api import codec, errors, resources
from podyard.api.resources import Resource
from podyard.api.types import Status, copy_of
from tests.component.apiserver.served import Served
from tests.component.apiserver.wires import JSON, PROTOBUF, YAML, GrpcWire, RestWire, Wire
from tests.unit.apiserver.test_registry_rows import build as sample
from tests.unit.apiserver.test_registry_rows import name_for, shows, status_of

pytestmark = pytest.mark.asyncio(loop_scope="session")
ROWS = pytest.mark.parametrize("row", resources.RESOURCES, ids=lambda row: row.qualified)
WIRES = ("json", "yaml", "protobuf", "grpc")


def wire_of(name: str, served: Served) -> Wire:
    media = {"json": JSON, "yaml": YAML, "protobuf": PROTOBUF}.get(name)
    return GrpcWire(served) if media is None else RestWire(served, media)


@pytest_asyncio.fixture(loop_scope="session", params=WIRES)
async def wire(request: pytest.FixtureRequest, served: Served) -> AsyncIterator[Wire]:
    opened = wire_of(request.param, served)
    yield opened
    if isinstance(opened, GrpcWire):
        await opened.close()


def build(row: Resource, name: str, group: str = "") -> Any:
    obj = sample(row, name)
    if group:
        obj.metadata.labels["group"] = group
    return obj


async def refused(work: Any) -> errors.ApiError:
    try:
        await work
    except errors.ApiError as error:
        return error
    raise AssertionError("it was not refused")


@ROWS
async def test_life_of_an_object(wire: Wire, served: Served, row: Resource, unique: str) -> None:
    unique = name_for(row, unique)
    made = await wire.create(row, build(row, unique))
    metadata = made.metadata
    assert (metadata.name, metadata.namespace) == (unique, "default" if row.namespaced else "")
    assert metadata.uid
    assert metadata.creationTimestamp.seconds > 0
    assert codec.same(await wire.get(row, unique), made)
    exists = await refused(wire.create(row, build(row, unique)))
    assert isinstance(exists, errors.AlreadyExists)
    assert exists.message == f'{row.qualified} "{unique}" already exists'
    assert (exists.kind, exists.group, exists.name) == (row.plural, row.group, unique)

    changed = copy_of(made)
    changed.metadata.labels["step"] = "1"
    updated = await wire.update(row, changed)
    assert int(updated.metadata.resourceVersion) > int(metadata.resourceVersion)
    assert updated.metadata.labels["step"] == "1"
    conflict = await refused(wire.update(row, changed))
    assert isinstance(conflict, errors.Conflict)
    assert conflict.message == (
        f'Operation cannot be fulfilled on {row.qualified} "{unique}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    await wire.patch(row, unique, "merge", {"metadata": {"labels": {"step": "2", "more": "x"}}})
    patch = [{"op": "replace", "path": "/metadata/labels/step", "value": "3"}]
    patched = await wire.patch(row, unique, "json", patch)
    assert dict(patched.metadata.labels).items() >= {"step": "3", "more": "x"}.items()
    patched = await wire.patch(row, unique, "strategic", {"metadata": {"labels": {"step": None}}})
    assert "step" not in patched.metadata.labels

    wrong = await refused(wire.delete(row, unique, preconditions={"uid": "other"}))
    assert isinstance(wrong, errors.Conflict)
    assert "the UID in the precondition (other) does not match the UID in record" in wrong.message
    stale = await refused(
        wire.delete(row, unique, preconditions={"resourceVersion": metadata.resourceVersion})
    )
    assert isinstance(stale, errors.Conflict)
    deleted = await wire.delete(row, unique, preconditions={"uid": metadata.uid})
    if row.kind == "Namespace":
        assert deleted.status.phase == "Terminating"
        return
    if row.shows_deleted:
        assert isinstance(deleted, row.message)
        assert deleted.metadata.uid == metadata.uid
    else:
        assert isinstance(deleted, Status)
        details = deleted.details
        assert (details.name, details.group, details.kind, details.uid) == (
            unique,
            row.group,
            row.plural,
            metadata.uid,
        )
    gone = await refused(wire.get(row, unique))
    assert isinstance(gone, errors.NotFound)
    assert gone.message == f'{row.qualified} "{unique}" not found'


@ROWS
async def test_every_way_in_answers_the_same(served: Served, row: Resource, unique: str) -> None:
    wires = {name: wire_of(name, served) for name in WIRES}
    for name, wire in wires.items():
        await wire.create(row, build(row, name_for(row, f"{unique}-{name}"), unique))
    for name in wires:
        found = [
            codec.to_dict(await wire.get(row, name_for(row, f"{unique}-{name}"))) for wire in wires.values()
        ]
        assert all(one == found[0] for one in found)
    pages = [await wire.list(row, labelSelector=f"group={unique}") for wire in wires.values()]
    listed = [[codec.to_dict(item) for item in page.items] for page in pages]
    assert len(listed[0]) == len(WIRES)
    assert all(one == listed[0] for one in listed)
    failures = []
    for wire in wires.values():
        failures.append(await refused(wire.get(row, name_for(row, f"{unique}-none"))))
    statuses = [codec.to_dict(error.to_status()) for error in failures]
    assert all(one == statuses[0] for one in statuses)
    await wires["grpc"].close()  # type: ignore[attr-defined]


@ROWS
async def test_lists_in_pages(wire: Wire, row: Resource, unique: str) -> None:
    names = [name_for(row, f"{unique}-{index}") for index in range(5)]
    for name in names:
        await wire.create(row, build(row, name, unique))
    selector = f"group={unique}"
    whole = await wire.list(row, labelSelector=selector)
    assert [item.metadata.name for item in whole.items] == names
    found, token, version = [], "", ""
    while True:
        more = {"continue": token} if token else {}
        page = await wire.list(row, labelSelector=selector, limit=2, **more)
        assert len(page.items) <= 2
        version = version or page.version
        assert page.version == version
        found += [item.metadata.name for item in page.items]
        token = page.token
        if not token:
            break
        await wire.create(row, build(row, name_for(row, f"{unique}-z{len(found)}"), unique))
    assert found == names
    one = await wire.list(row, fieldSelector=f"metadata.name={names[3]}")
    assert [item.metadata.name for item in one.items] == [names[3]]


@ROWS
async def test_watches(wire: Wire, row: Resource, unique: str) -> None:
    first = await wire.create(row, build(row, name_for(row, f"{unique}-a"), unique))
    await wire.patch(row, name_for(row, f"{unique}-a"), "merge", {"metadata": {"labels": {"step": "1"}}})
    selector = f"group={unique}"

    async def events(count: int, **options: Any) -> list[tuple[str, str]]:
        seen = []
        async with (
            asyncio.timeout(10),
            aclosing(wire.watch(row, labelSelector=selector, **options)) as stream,
        ):  # type: ignore[type-var]
            async for kind, obj in stream:
                if kind != "BOOKMARK" or "k8s.io/initial-events-end" in obj.metadata.annotations:
                    seen.append((kind, obj.metadata.name))
                if len(seen) == count:
                    break
        return seen

    resumed = asyncio.ensure_future(events(3, resourceVersion=first.metadata.resourceVersion))
    await wire.create(row, build(row, name_for(row, f"{unique}-b"), unique))
    # Leaving the selection is a deletion to whoever watches it.
    await wire.patch(row, name_for(row, f"{unique}-b"), "merge", {"metadata": {"labels": {"group": None}}})
    assert await resumed == [
        ("MODIFIED", name_for(row, f"{unique}-a")),
        ("ADDED", name_for(row, f"{unique}-b")),
        ("DELETED", name_for(row, f"{unique}-b")),
    ]
    initial = await events(
        2, sendInitialEvents=True, resourceVersionMatch="NotOlderThan", allowWatchBookmarks=True
    )
    assert initial == [("ADDED", name_for(row, f"{unique}-a")), ("BOOKMARK", "")]


@pytest.mark.parametrize(
    "row", [row for row in resources.RESOURCES if "status" in row.subresources], ids=lambda row: row.qualified
)
async def test_status_is_isolated(wire: Wire, row: Resource, unique: str) -> None:
    unique = name_for(row, unique)
    made = await wire.create(row, build(row, unique))
    wanted = status_of(row)
    through_main = await wire.patch(row, unique, "merge", wanted)
    assert through_main.metadata.resourceVersion == made.metadata.resourceVersion
    changed = copy_of(made)
    changed.status.MergeFrom(codec.from_dict(wanted, row.message).status)  # type: ignore[attr-defined]
    changed.metadata.labels["through"] = "status"
    through_status = await wire.update(row, changed, "status")
    assert shows(codec.to_dict(through_status), wanted)
    assert codec.to_dict(through_status.spec) == codec.to_dict(made.spec)
    again = await wire.patch(row, unique, "strategic", wanted, "status")
    assert shows(codec.to_dict(again), wanted)
    if "conditions" in wanted["status"]:
        assert [item.type for item in again.status.conditions].count("Odd") == 1


@ROWS
async def test_dry_run_changes_nothing(wire: Wire, served: Served, row: Resource, unique: str) -> None:
    unique = name_for(row, unique)
    made = await wire.create(row, build(row, unique), dryRun=["All"])
    assert made.metadata.uid
    assert made.metadata.resourceVersion == ""
    assert isinstance(await refused(wire.get(row, unique)), errors.NotFound)
    stored = await wire.create(row, build(row, unique))
    labels = {"metadata": {"labels": {"a": "b"}}}
    assert (await wire.patch(row, unique, "merge", labels, dryRun=["All"])).metadata.labels["a"] == "b"
    changed = copy_of(stored)
    changed.metadata.labels["c"] = "d"
    assert (await wire.update(row, changed, dryRun=["All"])).metadata.labels["c"] == "d"
    await wire.delete(row, unique, dryRun=["All"])
    assert codec.same(await wire.get(row, unique), stored)
    bad = await refused(wire.create(row, build(row, unique), dryRun=["Some"]))
    assert bad.message == (
        'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: '
        'supported values: "All"'
    )


@ROWS
async def test_a_collection_is_deleted(wire: Wire, row: Resource, unique: str) -> None:
    for index in range(3):
        await wire.create(row, build(row, name_for(row, f"{unique}-{index}"), unique))
    await wire.create(row, build(row, name_for(row, f"{unique}-other"), f"{unique}-other"))
    if "deletecollection" not in row.verbs:
        assert isinstance(
            await refused(wire.delete_collection(row, labelSelector=f"group={unique}")),
            errors.MethodNotAllowed,
        )
        return
    page = await wire.delete_collection(row, labelSelector=f"group={unique}")
    assert len(page.items) == 3
    assert (await wire.list(row, labelSelector=f"group={unique}")).items == []
    assert (await wire.get(row, name_for(row, f"{unique}-other"))).metadata.name == name_for(
        row, f"{unique}-other"
    )
