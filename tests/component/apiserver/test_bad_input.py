"""Wrong requests: upstream's Status and code, all that is wrong said at once, nothing stored."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from io import BytesIO
from typing import Any

import grpc
import orjson
import pytest
import pytest_asyncio
from google.rpc import status_pb2

from podyard.api import codec, resources
from podyard.api.types import ListOptions, Pod, Status, meta_v1, rpc
from podyard.client.client import rpc_class
from podyard.client.grpc_status import DETAILS_KEY
from tests.component.apiserver.bad_requests import (
    BODIES,
    HEADERS,
    JSON,
    MAPS,
    MERGE,
    NO_METHOD,
    NO_ROUTE,
    PODS,
    PROTOBUF,
    QUERIES,
    ROUTES,
    YAML,
    Case,
    pod,
)
from tests.component.apiserver.served import Served

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("case", [*BODIES, *HEADERS, *ROUTES, *QUERIES], ids=lambda case: case.name)
async def test_refused(served: Served, case: Case) -> None:
    before = await served.revision()
    data = None if case.body is None else BytesIO(case.body)
    headers = {"Accept": case.accept} | ({"Content-Type": case.content_type} if case.body is not None else {})
    async with served.session.request(case.method, case.path, data=data, headers=headers) as answer:
        status = orjson.loads(await answer.read()) if case.accept != YAML else None
        assert answer.status == case.code
        if status is None:
            return
    assert answer.content_type == JSON
    expected = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": case.message or status["message"],
        **({"reason": case.reason} if case.reason else {}),
        **case.more,
        "code": case.code,
    }
    if not case.more:
        status.pop("details", None)
    assert status == expected
    assert await served.revision() == before


async def test_every_cause_is_said_at_once(served: Served) -> None:
    body = pod(
        metadata={"name": "Bad!", "labels": {"a b": "c"}},
        spec={"containers": [{"name": "", "imagePullPolicy": "Maybe"}], "restartPolicy": "Maybe"},
    )
    async with served.session.post(PODS, data=body, headers={"Content-Type": JSON}) as answer:
        assert answer.status == 422
        status = await answer.json()
    causes = {(cause["field"], cause["reason"]) for cause in status["details"]["causes"]}
    assert causes >= {
        ("metadata.name", "FieldValueInvalid"),
        ("metadata.labels", "FieldValueInvalid"),
        ("spec.containers[0].name", "FieldValueRequired"),
        ("spec.containers[0].image", "FieldValueRequired"),
        ("spec.containers[0].imagePullPolicy", "FieldValueNotSupported"),
        ("spec.restartPolicy", "FieldValueNotSupported"),
    }
    assert status["message"].startswith('Pod "Bad!" is invalid: [')


_SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 3}}
_APPS = "/apis/apps/v1/namespaces/default"
# Method, path, body but for its metadata, and what a wrong name is answered with.
_ON_URL = "the name of the object (other) does not match the name on the URL (web)"
SUBRESOURCES = [
    (
        "POST",
        f"{PODS}/web/eviction",
        {"apiVersion": "policy/v1", "kind": "Eviction"},
        (400, "Eviction object"),
    ),
    (
        "POST",
        f"{PODS}/web/binding",
        {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "n"}},
        (400, "Binding object"),
    ),
    (
        "POST",
        "/api/v1/namespaces/default/serviceaccounts/web/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}},
        (422, "must match the service account name if specified"),
    ),
    *(
        ("PUT", f"{_APPS}/{kind}/web/scale", _SCALE, (400, _ON_URL))
        for kind in ("deployments", "statefulsets")
    ),
    ("PUT", f"{PODS}/web/status", {"apiVersion": "v1", "kind": "Pod"}, (400, _ON_URL)),
    (
        "PUT",
        f"{_APPS}/deployments/web/status",
        {"apiVersion": "apps/v1", "kind": "Deployment"},
        (400, _ON_URL),
    ),
]


@pytest.mark.parametrize(
    ("method", "path", "body", "wrong"), SUBRESOURCES, ids=[case[1] for case in SUBRESOURCES]
)
async def test_the_body_of_a_subresource_names_what_the_path_names(
    served: Served, method: str, path: str, body: dict[str, Any], wrong: tuple[int, str]
) -> None:
    expected = (400, "the namespace of the provided object does not match the namespace sent on the request")
    for metadata, (code, text) in (
        ({"name": "web", "namespace": "other"}, expected),
        ({"name": "other"}, wrong),
        ({"name": "other", "namespace": "default"}, wrong),
    ):
        data = orjson.dumps({**body, "metadata": metadata})
        async with served.session.request(method, path, data=data, headers={"Content-Type": JSON}) as answer:
            status = await answer.json()
        assert (answer.status, status["code"]) == (code, code), status
        assert text in status["message"]


@pytest.mark.parametrize(
    ("method", "path", "body"), [case[:3] for case in SUBRESOURCES], ids=[case[1] for case in SUBRESOURCES]
)
async def test_the_body_of_a_subresource_is_of_its_kind(
    served: Served, method: str, path: str, body: dict[str, Any]
) -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}}
    async with served.session.request(
        method, path, data=orjson.dumps(other), headers={"Content-Type": JSON}
    ) as answer:
        status = await answer.json()
    assert answer.status == 400
    kind = body["kind"]
    assert status["message"].startswith(
        f'ConfigMap in version "v1" cannot be handled as a {kind}: converting (v1.ConfigMap) to ('
    )


async def test_a_patched_scale_keeps_its_name(served: Served, unique: str) -> None:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "main", "image": "nginx"}]},
    }
    made = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": unique},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    headers = {"Content-Type": JSON}
    async with served.session.post(
        f"{_APPS}/deployments", data=orjson.dumps(made), headers=headers
    ) as answer:
        assert answer.status == 201
    scale = f"{_APPS}/deployments/{unique}/scale"
    headers = {"Content-Type": MERGE}
    async with served.session.patch(scale, data=b'{"metadata":{"name":"other"}}', headers=headers) as answer:
        assert answer.status == 400
    async with served.session.patch(scale, data=b'{"spec":{"replicas":2}}', headers=headers) as answer:
        assert (await answer.json())["spec"] == {"replicas": 2}


UNKNOWN = 'unknown field "spec.containers[0].imagee"'
DUPLICATE = 'duplicate field "spec.containers[0].name"'
ODD = (
    b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s"},'
    b'"spec":{"containers":[{"name":"x","name":"main","image":"nginx","imagee":"a"}]}}'
)
ODD_YAML = b"""apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  containers:
  - {image: nginx, name: main, imagee: a}
"""


@pytest.mark.parametrize("mode", ["Ignore", "Warn", "", "Strict"])
@pytest.mark.parametrize("media", [JSON, YAML])
async def test_field_validation(served: Served, unique: str, mode: str, media: str) -> None:
    body = (ODD if media == JSON else ODD_YAML) % unique.encode()
    query = {"fieldValidation": mode} if mode else {}
    async with served.session.post(PODS, params=query, data=body, headers={"Content-Type": media}) as answer:
        made = orjson.loads(await answer.read())
    problems = [DUPLICATE, UNKNOWN] if media == JSON else [UNKNOWN]
    warnings = answer.headers.getall("Warning", [])
    if mode == "Strict":
        assert answer.status == 400
        assert made["message"] == (
            'Pod in version "v1" cannot be handled as a Pod: strict decoding error: ' + ", ".join(problems)
        )
        async with served.session.get(f"{PODS}/{unique}") as absent:
            assert absent.status == 404
        return
    assert answer.status == 201
    assert made["spec"]["containers"][0]["name"] == "main"
    escaped = [
        f'299 - "{text}"'.replace('"', '\\"').replace('299 - \\"', '299 - "')[:-2] + '"' for text in problems
    ]
    assert warnings == ([] if mode == "Ignore" else escaped)


@pytest.mark.parametrize("mode", ["Ignore", "Warn", "Strict"])
async def test_field_validation_of_a_patch(served: Served, unique: str, mode: str) -> None:
    async with served.session.post(PODS, data=pod(metadata={"name": unique}), headers={"Content-Type": JSON}):
        pass
    before = await served.revision()
    async with served.session.patch(
        f"{PODS}/{unique}?fieldValidation={mode}", data=b'{"specc":{}}', headers={"Content-Type": MERGE}
    ) as answer:
        body = await answer.json()
    assert answer.headers.getall("Warning", []) == (
        ['299 - "unknown field \\"specc\\""'] if mode == "Warn" else []
    )
    assert answer.status == (422 if mode == "Strict" else 200)
    if mode == "Strict":
        assert 'strict decoding error: unknown field "specc"' in body["message"]
    assert await served.revision() == before


async def test_a_body_cut_off_stores_nothing(served: Served, unique: str) -> None:
    before = await served.revision()
    context = ssl.create_default_context(cafile=str(served.certificates.ca))
    context.load_cert_chain(*served.certificates.of("client"))
    for length in (b"Content-Length: 5000", b"Transfer-Encoding: chunked"):
        reader, writer = await asyncio.open_connection("localhost", served.rest_port, ssl=context)
        head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s\r\n\r\n"
        data = pod(metadata={"name": unique})
        part = data if b"Length" in length else b"%x\r\n%s\r\n" % (len(data), data)
        writer.write(head % (PODS.encode(), length) + part)
        await writer.drain()
        writer.close()
        await reader.read()
    # The same request whole is answered after the broken ones were given up.
    async with served.session.get(f"{PODS}/{unique}") as answer:
        assert answer.status == 404
    assert await served.revision() == before


async def test_a_stale_version_conflicts(served: Served, unique: str) -> None:
    body = {"metadata": {"name": unique}, "data": {"a": "1"}}
    async with served.session.post(MAPS, data=orjson.dumps(body), headers={"Content-Type": JSON}) as answer:
        stale = await answer.json()
    for expected in (200, 409):
        changed = stale | {"data": {"a": str(expected)}}
        async with served.session.put(
            f"{MAPS}/{unique}", data=orjson.dumps(changed), headers={"Content-Type": JSON}
        ) as answer:
            status = await answer.json()
            assert answer.status == expected
    assert (status["reason"], status["details"]) == ("Conflict", {"name": unique, "kind": "configmaps"})


async def test_without_a_credential(served: Served) -> None:
    for path in ("/livez", "/readyz", "/healthz", "/version", "/readyz?verbose"):
        async with served.anonymous.get(path) as answer:
            assert answer.status == 200, path
    for path in ("/api", "/apis", "/api/v1", PODS, "/openapi/v2", "/metrics", "/nothing", "/versions"):
        async with served.anonymous.get(path) as answer:
            assert answer.status == 401, path
            assert await answer.json() == {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": "Unauthorized",
                "reason": "Unauthorized",
                "code": 401,
            }


@pytest.mark.parametrize(
    "path", ["/nothing", "/api/v2", "/api/v2/pods", "/apis/nothing", "/apis/nothing/v1/foos", "/foo/bar"]
)
async def test_unknown_paths(served: Served, path: str) -> None:
    async with served.session.get(path) as answer:
        assert answer.status == 404
        assert answer.content_type == "text/plain"
        assert await answer.text() == "404 page not found\n"


async def test_a_status_comes_in_the_form_that_was_asked_for(served: Served) -> None:
    async with served.session.get(f"{PODS}/none", headers={"Accept": PROTOBUF}) as answer:
        assert answer.content_type == PROTOBUF
        status = codec.decode_protobuf(await answer.read(), Status).message
        assert (status.reason, status.code) == ("NotFound", 404)
    async with served.session.get(f"{PODS}/none", headers={"Accept": YAML}) as answer:
        assert answer.content_type == YAML
        assert "reason: NotFound\n" in await answer.text()
    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    async with served.session.get(f"{PODS}/none", headers={"Accept": table}) as answer:
        assert (await answer.json())["reason"] == "NotFound"


# The same over gRPC.


@pytest_asyncio.fixture(loop_scope="session")
async def call(served: Served) -> AsyncIterator[Any]:
    """Calls a method; answers the Status of its failure."""

    async def refused(method: str, request: Any) -> tuple[grpc.StatusCode, Status]:
        unary = served.channel.unary_unary(method, request_serializer=bytes)
        data = request if isinstance(request, bytes) else request.SerializeToString()
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await unary(data)
        error = refusal.value
        details: Any = (error.trailing_metadata() or {})[DETAILS_KEY]
        outer, status = status_pb2.Status.FromString(details), Status()
        assert outer.code == error.code().value[0]
        assert outer.details[0].Unpack(status)
        assert error.details() == outer.message == status.message
        return error.code(), status

    yield refused


async def test_grpc_says_the_same(served: Served, call: Any) -> None:
    before = await served.revision()
    row = resources.by_message(Pod)
    service = f"/{row.service}"
    create = rpc_class(row, "CreateRequest")
    bad = Pod(metadata={"name": "Bad!"}, spec={"containers": [{"name": ""}]})
    code, status = await call(f"{service}/Create", create(namespace="default", object=bad))
    assert (code, status.reason, status.code) == (grpc.StatusCode.INVALID_ARGUMENT, "Invalid", 422)
    assert {cause.field for cause in status.details.causes} >= {"metadata.name", "spec.containers[0].name"}

    code, status = await call(f"{service}/Get", rpc.GetRequest(namespace="default", name="none"))
    assert (code, status.message) == (grpc.StatusCode.NOT_FOUND, 'pods "none" not found')

    large = Pod(metadata={"name": "bad"}, spec={"containers": [{"name": "c", "image": "i"}]})
    large.spec.containers[0].args.append("A" * 2_000_000)
    code, status = await call(f"{service}/Create", create(namespace="default", object=large))
    assert (code, status.code) == (grpc.StatusCode.RESOURCE_EXHAUSTED, 413)

    options = ListOptions(labelSelector="a===b")
    code, status = await call(f"{service}/List", rpc.ListRequest(namespace="default", options=options))
    assert (code, status.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "BadRequest")
    options = ListOptions(resourceVersion="abc")
    code, status = await call(f"{service}/List", rpc.ListRequest(namespace="default", options=options))
    assert (code, status.code) == (grpc.StatusCode.UNKNOWN, 500)

    patch = rpc.PatchRequest(namespace="default", name="web", type="application/apply-patch+yaml", body=b"{}")
    code, status = await call(f"{service}/Patch", patch)
    assert (code, status.code) == (grpc.StatusCode.INVALID_ARGUMENT, 415)
    patch = rpc.PatchRequest(namespace="default", name="web", type=MERGE, body=b"{}", subresource="foo")
    code, status = await call(f"{service}/Patch", patch)
    assert (code, status.message) == (grpc.StatusCode.NOT_FOUND, NO_ROUTE)
    patch.subresource = "log"
    code, status = await call(f"{service}/Patch", patch)
    assert (code, status.message) == (grpc.StatusCode.UNIMPLEMENTED, NO_METHOD)

    many = create(namespace="default", object=bad, options=meta_v1.CreateOptions(fieldValidation="Hard"))
    code, status = await call(f"{service}/Create", many)
    assert status.message.startswith('CreateOptions.meta.k8s.io "" is invalid: fieldValidation: ')
    update = rpc_class(row, "UpdateRequest")(namespace="default", object=Pod())
    code, status = await call(f"{service}/Update", update)
    assert status.message == (
        "the name of the object ( based on URL) was undeterminable: name must be provided"
    )
    everywhere = rpc.DeleteCollectionRequest(list_options=ListOptions(labelSelector="a=b"))
    code, status = await call(f"{service}/DeleteCollection", everywhere)
    assert (code, status.message) == (grpc.StatusCode.UNIMPLEMENTED, NO_METHOD)
    assert await served.revision() == before


async def test_grpc_without_a_certificate_is_refused(served: Served) -> None:
    credentials = grpc.ssl_channel_credentials(served.certificates.ca.read_bytes())
    async with grpc.aio.secure_channel(f"localhost:{served.grpc_port}", credentials) as channel:
        unary = channel.unary_unary("/podyard.core.v1.PodService/List", request_serializer=bytes)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await unary(b"", timeout=5)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_grpc_bytes_that_are_no_message(served: Served) -> None:
    unary = served.channel.unary_unary("/podyard.core.v1.PodService/Create", request_serializer=bytes)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await unary(b"\xff\xff\xff", timeout=5)
    assert refused.value.code() is not grpc.StatusCode.UNAVAILABLE
    unary = served.channel.unary_unary("/podyard.core.v1.PodService/Nothing", request_serializer=bytes)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await unary(b"", timeout=5)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
