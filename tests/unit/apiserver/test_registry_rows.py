"""One conformance test over every row of the resource table."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from podyard.api import codec, errors, resources
from podyard.api.resources import Resource
from podyard.api.types import Message, copy_of
from tests.unit.apiserver.registry_api import Api, refused

pytestmark = pytest.mark.virtual

WORKLOAD = {
    "selector": {"matchLabels": {"app": "one"}},
    "template": {
        "metadata": {"labels": {"app": "one"}},
        "spec": {"containers": [{"name": "main", "image": "nginx"}]},
    },
}
# What each kind needs beside a name.
BODIES: dict[str, dict[str, Any]] = {
    "Pod": {"spec": {"containers": [{"name": "main", "image": "nginx"}]}},
    "Deployment": {"spec": WORKLOAD},
    "ReplicaSet": {"spec": WORKLOAD},
    "Service": {"spec": {"ports": [{"port": 80}]}},
    "EndpointSlice": {"addressType": "IPv4", "endpoints": []},
    "PriorityClass": {"value": 5},
    "PodDisruptionBudget": {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "one"}}}},
    "Event": {
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web"},
        "reason": "Started",
        "message": "m",
        "type": "Normal",
    },
    "events.k8s.io/Event": {
        "regarding": {"kind": "Pod", "namespace": "default", "name": "web"},
        "reason": "Started",
        "note": "m",
        "type": "Normal",
        "action": "Starting",
        "reportingController": "k8s.io/tester",
        "reportingInstance": "tester-1",
        "eventTime": "2026-01-01T00:00:00.000000Z",
    },
}
# What a controller may say of each kind; where nothing stands, a condition.
STATUSES: dict[str, dict[str, Any]] = {}
CONDITION = {
    "type": "Odd",
    "status": "True",
    "reason": "Tested",
    "message": "m",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
ROWS = pytest.mark.parametrize("row", resources.RESOURCES, ids=lambda row: row.qualified)


def build(row: Resource, name: str) -> Any:
    body = BODIES.get(f"{row.group}/{row.kind}", BODIES.get(row.kind, {}))
    metadata = {"name": name} | ({"namespace": "default"} if row.namespaced else {})
    obj: Any = codec.from_dict({"metadata": metadata, **body}, row.message)
    return obj


def status_of(row: Resource) -> dict[str, Any]:
    """An example of a row's status, as a merge patch's body."""
    return {"status": STATUSES.get(row.qualified, {"conditions": [CONDITION]})}


def shows(found: Any, wanted: Any) -> bool:
    """Whether JSON has all that is wanted, at any depth; lists may have more."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(shows(found.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and all(any(shows(item, one) for item in found) for one in wanted)
    return bool(found == wanted)


@ROWS
async def test_life_of_an_object(api: Api, row: Resource) -> None:
    kind: type[Message] = row.message
    made = await api.create(build(row, "one"))
    metadata = made.message.metadata
    assert metadata.uid
    assert metadata.creationTimestamp.seconds > 0
    assert metadata.resourceVersion == str(made.revision)
    exists = await refused(api.create(build(row, "one")))
    assert isinstance(exists, errors.AlreadyExists)
    assert exists.message == f'{row.qualified} "one" already exists'

    found = await api.get(kind, "one")
    assert found.raw == made.raw
    value = orjson.loads(found.json)
    assert (value["kind"], value["apiVersion"]) == (row.kind, row.api_version)
    assert value["metadata"]["resourceVersion"] == str(made.revision)

    changed = copy_of(made.message)
    changed.metadata.labels["step"] = "1"
    updated, created = await api.update(changed)
    assert not created
    assert updated.revision > made.revision
    assert updated.message.metadata.labels["step"] == "1"
    assert updated.message.metadata.uid == metadata.uid
    conflict = await refused(api.update(changed))
    assert isinstance(conflict, errors.Conflict)
    assert conflict.message == (
        f'Operation cannot be fulfilled on {row.qualified} "one": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    same, _ = await api.update(copy_of(updated.message))
    assert same.revision == updated.revision

    patched = await api.patch(kind, "one", b'{"metadata":{"labels":{"step":"2"}}}')
    patched = await api.patch(
        kind, "one", b'[{"op":"add","path":"/metadata/labels/json","value":"3"}]', how="json"
    )
    patched = await api.patch(
        kind, "one", b'{"metadata":{"labels":{"step":null},"finalizers":["a/b"]}}', how="strategic"
    )
    assert dict(patched.message.metadata.labels).items() >= {"json": "3"}.items()
    assert "step" not in patched.message.metadata.labels
    await api.patch(kind, "one", b'{"metadata":{"finalizers":null}}')


@pytest.mark.parametrize(
    "row", [row for row in resources.RESOURCES if "status" in row.subresources], ids=lambda row: row.qualified
)
async def test_status_is_isolated(api: Api, row: Resource) -> None:
    made = await api.create(build(row, "one"))
    wanted = status_of(row)
    through_main = await api.patch(row.message, "one", orjson.dumps(wanted))
    assert through_main.revision == made.revision
    body = {**wanted, "spec": {"unschedulable": True}}
    through_status = await api.patch(row.message, "one", orjson.dumps(body), subresource="status")
    assert shows(codec.to_dict(through_status.message), wanted)
    assert through_status.message.spec == made.message.spec
    assert isinstance(await refused(api.update(build(row, "two"), subresource="status")), errors.NotFound)


@ROWS
async def test_list_pages_and_selectors(api: Api, row: Resource) -> None:
    for index in range(5):
        obj = build(row, f"n{index}")
        obj.metadata.labels["parity"] = "even" if index % 2 == 0 else "odd"
        await api.create(obj)
    wanted = [f"n{index}" for index in range(5)]

    def names(listed: Any) -> list[str]:
        return [item.name for item in listed.items if item.name in wanted]

    assert names(await api.list(row.message)) == wanted
    odd = await api.list(row.message, labelSelector="parity=odd")
    assert names(odd) == ["n1", "n3"]
    assert odd.remaining is None
    assert names(await api.list(row.message, fieldSelector="metadata.name=n2")) == ["n2"]
    assert names(await api.list(row.message, namespace="default" if row.namespaced else "")) == wanted
    if row.namespaced:
        assert names(await api.list(row.message, namespace="other")) == []
        assert names(await api.list(row.message, fieldSelector="metadata.namespace=other")) == []
    listed, token = [], ""
    revision = ""
    while True:
        page = await api.list(row.message, limit=2, **({"continue": token} if token else {}))
        revision = revision or page.resource_version
        assert page.resource_version == revision
        listed += [item.name for item in page.items]
        token = page.continue_token
        assert (page.remaining is None) == (not token)
        if not token:
            break
        # What changes between the pages is not seen in them.
        await api.create(build(row, f"z{len(listed)}"))
    assert [name for name in listed if name in wanted] == wanted
    assert not [name for name in listed if name.startswith("z")]


@ROWS
async def test_watch_from_a_revision(api: Api, row: Resource) -> None:
    made = await api.create(build(row, "one"))
    await api.patch(row.message, "one", b'{"metadata":{"labels":{"a":"b"}}}')
    await api.create(build(row, "two"))
    stream = api.watch(row.message, resourceVersion=str(made.revision))
    seen: list[tuple[str, str]] = []
    while len(seen) < 2:
        seen += [(kind, item.name) for kind, item in (await anext(stream)).events]
    assert seen == [("MODIFIED", "one"), ("ADDED", "two")]
    await stream.aclose()


@ROWS
async def test_delete_with_preconditions(api: Api, row: Resource) -> None:
    made = await api.create(build(row, "one"))
    wrong = await refused(api.delete(row.message, "one", preconditions={"uid": "other"}))
    assert isinstance(wrong, errors.Conflict)
    assert "the UID in the precondition (other) does not match the UID in record" in wrong.message
    stale = await refused(api.delete(row.message, "one", preconditions={"resourceVersion": "1"}))
    assert isinstance(stale, errors.Conflict)
    uid = made.message.metadata.uid
    deleted = await api.delete(row.message, "one", preconditions={"uid": uid})
    if row.kind == "Namespace":
        assert deleted.object is not None
        assert deleted.object.message.status.phase == "Terminating"
        return
    if row.kind != "Pod":
        assert deleted.object is None
        details = deleted.status.details
        assert (details.name, details.group, details.kind, details.uid) == ("one", row.group, row.plural, uid)
    gone = await refused(api.get(row.message, "one"))
    assert isinstance(gone, errors.NotFound)
    assert gone.message == f'{row.qualified} "one" not found'


@ROWS
async def test_finalizers_hold_an_object(api: Api, row: Resource) -> None:
    if row.kind == "Namespace":
        pytest.skip("has its own finalizers")
    obj = build(row, "one")
    obj.metadata.finalizers.append("podyard.io/test")
    await api.create(obj)
    held = await api.delete(row.message, "one")
    assert held.object is not None
    assert held.object.message.metadata.HasField("deletionTimestamp")
    again = await api.delete(row.message, "one")
    assert again.object is not None
    assert again.object.revision == held.object.revision
    await api.patch(row.message, "one", b'{"metadata":{"finalizers":null}}')
    assert isinstance(await refused(api.get(row.message, "one")), errors.NotFound)


@ROWS
async def test_dry_run_changes_nothing(api: Api, row: Resource) -> None:
    before = await api.store.current_revision()
    made = await api.create(build(row, "one"), dryRun=["All"])
    assert made.message.metadata.uid
    assert made.message.metadata.resourceVersion == ""
    assert await api.store.current_revision() == before
    await api.create(build(row, "one"))
    assert isinstance(await refused(api.create(build(row, "one"), dryRun=["All"])), errors.AlreadyExists)
    before = await api.store.current_revision()
    patched = await api.patch(row.message, "one", b'{"metadata":{"labels":{"a":"b"}}}', dryRun=["All"])
    assert patched.message.metadata.labels["a"] == "b"
    await api.delete(row.message, "one", dryRun=["All"])
    assert await api.store.current_revision() == before


@ROWS
async def test_put_creates_where_the_row_allows_it(api: Api, row: Resource) -> None:
    obj = build(row, "one")
    if row.create_on_update:
        item, created = await api.update(obj)
        assert created
        assert item.message.metadata.uid
    else:
        assert isinstance(await refused(api.update(obj)), errors.NotFound)


@ROWS
async def test_put_without_a_resource_version(api: Api, row: Resource) -> None:
    made = await api.create(build(row, "one"))
    obj = copy_of(made.message)
    obj.metadata.resourceVersion = ""
    obj.metadata.labels["a"] = "b"
    if row.unconditional_update:
        item, _ = await api.update(obj)
        assert item.revision > made.revision
    else:
        error = await refused(api.update(obj))
        assert error.message == (
            f'{row.kind}{"." + row.group if row.group else ""} "one" is invalid: '
            "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
        )
