"""What REST says beside plain objects: discovery, tables, partial metadata, OpenAPI, watch forms, health."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import orjson
import pytest

from apiserver.store.memory import MemoryStore
from podyard.api import codec, facts, resources
from podyard.api.resources import Resource
from podyard.api.types import meta_v1
from tests.component.apiserver.served import Certificates, Served, serve
from tests.component.apiserver.wires import JSON, PROTOBUF, RestWire, path_of
from tests.unit.apiserver.test_registry_rows import build as sample
from tests.unit.apiserver.test_registry_rows import name_for

pytestmark = pytest.mark.asyncio(loop_scope="session")
ROWS = pytest.mark.parametrize("row", resources.RESOURCES, ids=lambda row: row.qualified)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL_LIST = "as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
PARTIAL = "as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


async def get(served: Served, path: str, accept: str = JSON, **headers: str) -> Any:
    async with served.session.get(path, headers={"Accept": accept, **headers}) as answer:
        body = await answer.read()
        assert answer.status == 200, body
        return orjson.loads(body)


def versions() -> dict[tuple[str, str], list[Resource]]:
    found: dict[tuple[str, str], list[Resource]] = {}
    for row in resources.OFFERED:
        found.setdefault((row.group, row.version), []).append(row)
    return found


async def test_discovery_is_the_table(served: Served) -> None:
    assert (await get(served, "/api"))["versions"] == ["v1"]
    listed = {group["name"] for group in (await get(served, "/apis"))["groups"]}
    assert listed == {group for group, _ in versions()} - {""}
    for (group, version), rows in versions().items():
        path = f"/apis/{group}/{version}" if group else "/api/v1"
        document = await get(served, path)
        assert document["kind"] == "APIResourceList"
        by_name = {entry["name"]: entry for entry in document["resources"]}
        for row in rows:
            entry = by_name[row.plural]
            assert (entry["kind"], entry["namespaced"]) == (row.kind, row.namespaced)
            assert sorted(entry["verbs"]) == sorted(row.verbs)
            assert tuple(entry.get("shortNames", ())) == row.short_names
            assert {f"{row.plural}/{part}" for part in row.subresources} <= set(by_name)
        assert len(by_name) == sum(1 + len(row.subresources) for row in rows)


async def test_aggregated_discovery_says_the_same(served: Served) -> None:
    found = {}
    for root in ("/api", "/apis"):
        document = await get(served, root, f"{AGGREGATED},application/json")
        assert document["kind"] == "APIGroupDiscoveryList"
        for group in document["items"]:
            for version in group["versions"]:
                for entry in version["resources"]:
                    name = group["metadata"].get("name", "")
                    found[name, version["version"], entry["resource"]] = entry
    assert set(found) == {(row.group, row.version, row.plural) for row in resources.OFFERED}
    for row in resources.OFFERED:
        entry = found[row.group, row.version, row.plural]
        assert entry["responseKind"]["kind"] == row.kind
        assert entry["scope"] == ("Namespaced" if row.namespaced else "Cluster")
        assert {part["subresource"] for part in entry.get("subresources", [])} == set(row.subresources)


@pytest.mark.parametrize(
    "path", ["/api", "/apis", "/api/v1", "/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1"]
)
async def test_documents_have_etags(served: Served, path: str) -> None:
    async with served.session.get(path) as answer:
        assert answer.status == 200
        etag = answer.headers["Etag"]
        assert await answer.read()
    async with served.session.get(path, headers={"If-None-Match": etag}) as answer:
        assert answer.status == 304
        assert await answer.read() == b""


async def test_openapi_has_every_kind(served: Served) -> None:
    definitions = (await get(served, "/openapi/v2"))["definitions"]
    kinds = {
        (kind["group"], kind["version"], kind["kind"])
        for schema in definitions.values()
        for kind in schema.get("x-kubernetes-group-version-kind", ())
    }
    assert kinds >= {(row.group, row.version, row.kind) for row in resources.OFFERED}
    for (group, version), rows in versions().items():
        path = f"/openapi/v3/apis/{group}/{version}" if group else "/openapi/v3/api/v1"
        document = await get(served, path)
        schemas = document["components"]["schemas"]
        for schema in schemas.values():
            for reference in _references(schema):
                assert reference.removeprefix("#/components/schemas/") in schemas
        for row in rows:
            # kubectl looks for this parameter to learn that the server validates fields.
            operation = document["paths"][path_of(row).replace("/default/", "/{namespace}/")]["post"]
            assert "fieldValidation" in {parameter["name"] for parameter in operation["parameters"]}
            # Clients read the answer to a delete as what is promised here.
            if "delete" in row.verbs:
                named = path_of(row, "{name}").replace("/default/", "/{namespace}/")
                answer = document["paths"][named]["delete"]["responses"]["200"]
                (promised,) = set(_references(answer))
                assert promised.endswith(f".{row.kind}" if row.shows_deleted else ".Status")


def _references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [found for part in schema for found in _references(part)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
    return own + [found for part in schema.values() for found in _references(part)]


async def test_openapi_says_what_may_be_a_number_or_text(served: Served) -> None:
    """Version 3 has alternatives, from which clients name the type; version 2 has none."""
    v2 = (await get(served, "/openapi/v2"))["definitions"]
    v3 = (await get(served, "/openapi/v3/apis/apps/v1"))["components"]["schemas"]
    amount = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
    quantity = "io.k8s.apimachinery.pkg.api.resource.Quantity"
    for document in (v2, v3):
        assert document[amount].pop("description")
        assert document[quantity].pop("description")
    assert v2[amount] == {"type": "string", "format": "int-or-string"}
    assert v3[amount] == {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}
    assert v2[quantity] == {"type": "string"}
    assert v3[quantity] == {"oneOf": [{"type": "string"}, {"type": "number"}]}


@ROWS
async def test_tables(served: Served, row: Resource, unique: str) -> None:
    name = name_for(row, unique)
    wire = RestWire(served, JSON)
    obj = sample(row, name)
    obj.metadata.labels["group"] = unique
    await wire.create(row, obj)
    columns = [fact["column"] for fact in facts.rows("printer_columns") if _is_of(fact, row)]
    columns = [name for name in columns if not name.startswith("(")]
    assert columns
    for path in (path_of(row, name), f"{path_of(row)}?labelSelector=group%3D{unique}"):
        table = await get(served, path, TABLE)
        assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        assert [column["name"] for column in table["columnDefinitions"]] == columns
        # Upstream's table has a cell without a column for one kind.
        more = row.kind == "IPAddress"
        assert [len(entry["cells"]) for entry in table["rows"]] == [len(columns) + more]
        partial = table["rows"][0]["object"]
        assert (partial["kind"], partial["metadata"]["name"]) == ("PartialObjectMetadata", name)
    whole = await get(served, f"{path_of(row, name)}?includeObject=Object", TABLE)
    assert whole["rows"][0]["object"]["kind"] == row.kind
    bare = await get(served, f"{path_of(row, name)}?includeObject=None", TABLE)
    assert bare["rows"][0]["object"] is None


SCALED = [row for row in resources.RESOURCES if "scale" in row.subresources]


@pytest.mark.parametrize("row", SCALED, ids=lambda row: row.qualified)
async def test_the_scale_has_the_forms_of_objects(served: Served, row: Resource, unique: str) -> None:
    name = name_for(row, unique)
    obj = sample(row, name)
    obj.spec.replicas = 3
    made = await RestWire(served, JSON).create(row, obj)
    path = f"{path_of(row, name)}/scale"
    table = await get(served, path, TABLE)
    shown = [column["name"] for column in table["columnDefinitions"]]
    assert shown == ["Name", "Desired", "Available", "Age"]
    assert table["rows"][0]["cells"][:3] == [name, 3, 0]
    assert table["rows"][0]["object"]["metadata"]["uid"] == made.metadata.uid
    whole = await get(served, f"{path}?includeObject=Object", TABLE)
    assert whole["rows"][0]["object"]["spec"] == {"replicas": 3}
    partial = await get(served, path, f"{JSON};{PARTIAL}")
    assert (partial["kind"], partial["metadata"]["name"]) == ("PartialObjectMetadata", name)
    plain = await get(served, path)
    assert (plain["kind"], plain["spec"]) == ("Scale", {"replicas": 3})


def _is_of(fact: dict[str, str], row: Resource) -> bool:
    return fact["kind"] in (row.kind, f"{row.api_version}/{row.kind}")


@ROWS
async def test_partial_metadata(served: Served, row: Resource, unique: str) -> None:
    name = name_for(row, unique)
    obj = sample(row, name)
    obj.metadata.labels["group"] = unique
    made = await RestWire(served, JSON).create(row, obj)
    one = await get(served, path_of(row, name), f"{JSON};{PARTIAL}")
    assert set(one) == {"kind", "apiVersion", "metadata"}
    assert one["metadata"]["uid"] == made.metadata.uid
    path = f"{path_of(row)}?labelSelector=group%3D{unique}"
    listed = await get(served, path, f"{JSON};{PARTIAL_LIST}")
    assert (listed["kind"], len(listed["items"])) == ("PartialObjectMetadataList", 1)
    async with served.session.get(path, headers={"Accept": f"{PROTOBUF};{PARTIAL_LIST}"}) as answer:
        answered = codec.decode_protobuf(await answer.read(), meta_v1.PartialObjectMetadataList).message
    assert [item.metadata.uid for item in answered.items] == [made.metadata.uid]


@ROWS
async def test_watches_as_tables_and_partial_metadata(served: Served, row: Resource, unique: str) -> None:
    name = name_for(row, unique)
    obj = sample(row, name)
    obj.metadata.labels["group"] = unique
    await RestWire(served, JSON).create(row, obj)
    path = (
        f"{path_of(row)}?watch=1&labelSelector=group%3D{unique}&sendInitialEvents=true"
        "&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    )
    async with asyncio.timeout(10):
        async with served.session.get(path, headers={"Accept": TABLE}) as answer:
            lines = [orjson.loads(await answer.content.readline()) for _ in range(2)]
        assert [line["type"] for line in lines] == ["ADDED", "BOOKMARK"]
        assert lines[0]["object"]["columnDefinitions"]
        assert lines[0]["object"]["rows"][0]["object"]["metadata"]["name"] == name
        end = lines[1]["object"]["rows"][0]["object"]["metadata"]
        assert end["annotations"]["k8s.io/initial-events-end"] == "true"
        accept = f"{PROTOBUF};{PARTIAL}"
        async with served.session.get(path, headers={"Accept": accept}) as answer:
            events = []
            for _ in range(2):
                size = struct.unpack(">I", await answer.content.readexactly(4))[0]
                events.append(meta_v1.WatchEvent.FromString(await answer.content.readexactly(size)))
    partial = codec.decode_protobuf(events[0].object.raw, meta_v1.PartialObjectMetadata)
    assert (partial.kind, partial.message.metadata.name) == ("PartialObjectMetadata", name)
    assert events[1].type == "BOOKMARK"


async def test_a_watch_ends_at_its_time(served: Served) -> None:
    path = f"{path_of(resources.by_kind('v1', 'Pod'))}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true"
    async with asyncio.timeout(10), served.session.get(path) as answer:
        lines = [orjson.loads(line) async for line in answer.content]
    assert lines[-1]["type"] == "BOOKMARK"


async def test_an_old_version_is_an_error_event(certificates: Certificates) -> None:
    # Upstream answers the watch and tells of the expiry inside, which clients look for there.
    store = MemoryStore()
    old = await store.create("/registry/before-the-server", b"1")
    await store.compact(await store.create("/registry/before-the-server-too", b"1"))
    async with serve(store, certificates) as served:
        path = f"{path_of(resources.by_kind('v1', 'Pod'))}?watch=1&resourceVersion={old}"
        async with asyncio.timeout(10), served.session.get(path) as answer:
            assert answer.status == 200
            lines = [orjson.loads(line) async for line in answer.content]
    assert [line["type"] for line in lines] == ["ERROR"]
    assert (lines[0]["object"]["reason"], lines[0]["object"]["code"]) == ("Expired", 410)


async def test_a_binding(served: Served, unique: str) -> None:
    row = resources.by_kind("v1", "Pod")
    await RestWire(served, JSON).create(row, sample(row, unique))
    body = {
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": unique},
        "target": {"kind": "Node", "name": "node-1"},
    }  # fmt: skip
    for code in (201, 409):
        async with served.session.post(
            path_of(row, unique, "binding"), data=orjson.dumps(body), headers={"Content-Type": JSON}
        ) as answer:
            status = await answer.json()
            assert answer.status == code, status
    assert status["message"].startswith(
        f'Operation cannot be fulfilled on pods/binding "{unique}": pod {unique} is already assigned'
    )
    bound = await get(served, path_of(row, unique))
    assert bound["spec"]["nodeName"] == "node-1"
    async with served.session.get(path_of(row, unique, "log")) as answer:
        assert answer.status >= 400
        assert (await answer.json())["kind"] == "Status"


async def test_a_client_that_goes_leaves_no_watch(served: Served) -> None:
    path = f"{path_of(resources.by_kind('v1', 'Secret'))}?watch=1"
    before = served.core.cache.watcher_count
    async with served.session.get(path) as answer:
        assert answer.status == 200
        async with asyncio.timeout(30):
            while served.core.cache.watcher_count == before:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    async with asyncio.timeout(30):
        while served.core.cache.watcher_count > before:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("query", ["", "?watch=1&timeoutSeconds=1"])
async def test_every_answer_has_its_head(served: Served, query: str) -> None:
    deprecated = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
    for plural, warnings in (("endpoints", [f'299 - "{deprecated}"']), ("pods", [])):
        path = f"/api/v1/namespaces/default/{plural}{query}"
        async with served.session.get(path, headers={"Audit-ID": "abc"}) as answer:
            assert answer.status == 200
            assert answer.headers["Audit-Id"] == "abc"
            assert answer.headers["Cache-Control"] == "no-cache, private"
            assert answer.headers.getall("Warning", []) == warnings
    async with served.anonymous.get("/api") as refused:
        assert refused.headers["Audit-Id"]


@pytest.mark.parametrize(
    "form", ["as=Table;v=v9;g=meta.k8s.io", "as=Table;v=v1;g=other", "as=Other;v=v1;g=meta.k8s.io"]
)
async def test_forms_that_nobody_serves(served: Served, form: str) -> None:
    path = path_of(resources.by_kind("v1", "Pod"))
    async with served.session.get(path, headers={"Accept": f"{JSON};{form}"}) as answer:
        assert answer.status == 406
    # The next that the client takes is answered.
    assert (await get(served, path, f"{JSON};{form},{JSON}"))["kind"] == "PodList"
