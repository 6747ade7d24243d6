"""One client interface over each way in: REST as JSON, YAML or protobuf, and gRPC.

Answers are messages whichever way they came, and failures are `ApiError`s made of the Status that
was sent, so a test can ask of every way the same and compare.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
import yaml

from podyard.api import codec, errors
from podyard.api.resources import Resource
from podyard.api.types import DeleteOptions, ListOptions, Message, Status, meta_v1, rpc
from podyard.client.client import rpc_class
from podyard.client.grpc_transport import GrpcTransport
from tests.component.apiserver.served import Served

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


@dataclass(frozen=True)
class Page:
    """A list's answer."""

    items: list[Any]
    version: str
    token: str
    remaining: int | None


class Wire(Protocol):
    """The verbs; options are fields of upstream's option messages."""

    async def create(self, row: Resource, obj: Any, **options: Any) -> Any: ...
    async def get(self, row: Resource, name: str) -> Any: ...
    async def list(self, row: Resource, **options: Any) -> Page: ...
    def watch(self, row: Resource, **options: Any) -> AsyncIterator[tuple[str, Any]]: ...
    async def update(self, row: Resource, obj: Any, subresource: str = "", **options: Any) -> Any: ...
    async def patch(
        self, row: Resource, name: str, how: str, body: Any, subresource: str = "", **options: Any
    ) -> Any: ...
    async def delete(self, row: Resource, name: str, **options: Any) -> Any: ...
    async def delete_collection(self, row: Resource, **options: Any) -> Page: ...


def namespace_of(row: Resource) -> str:
    return "default" if row.namespaced else ""


def path_of(row: Resource, name: str = "", subresource: str = "") -> str:
    """A row's URL path in the namespace `default`."""
    root = f"/apis/{row.group}/{row.version}" if row.group else f"/api/{row.version}"
    parts = ["namespaces", "default"] if row.namespaced else []
    return "/".join([root, *parts, row.plural, *filter(None, (name, subresource))])


def page_of(answer: Any) -> Page:
    remaining = answer.metadata.remainingItemCount if answer.metadata.HasField("remainingItemCount") else None
    return Page(
        list(answer.items),
        answer.metadata.resourceVersion,
        getattr(answer.metadata, "continue"),
        remaining,
    )


def query_of(options: dict[str, Any]) -> list[tuple[str, str]]:
    pairs = []
    for key, value in options.items():
        for part in value if isinstance(value, list) else [value]:
            pairs.append((key, str(part).lower() if isinstance(part, bool) else str(part)))
    return pairs


class RestWire:
    """REST in one media type."""

    def __init__(self, served: Served, media: str) -> None:
        self._session = served.session
        self._media = media

    async def create(self, row: Resource, obj: Any, **options: Any) -> Any:
        return await self._send("POST", row, path_of(row), obj, options, 201)

    async def get(self, row: Resource, name: str) -> Any:
        return await self._send("GET", row, path_of(row, name), None, {}, 200)

    async def list(self, row: Resource, **options: Any) -> Page:
        return page_of(await self._send("GET", row, path_of(row), None, options, 200, row.list_message))

    async def watch(self, row: Resource, **options: Any) -> AsyncIterator[tuple[str, Any]]:
        media = PROTOBUF if self._media == PROTOBUF else JSON
        accept = f"{media};stream=watch"
        query = query_of({"watch": True, **options})
        async with self._session.get(path_of(row), params=query, headers={"Accept": accept}) as answer:
            if answer.status != 200:
                raise self._error(await answer.read(), answer.content_type)
            assert answer.headers["Content-Type"] == (accept if media == PROTOBUF else JSON)
            async with aclosing(_frames(answer.content, media, row)) as frames:
                async for kind, obj in frames:
                    if kind == "ERROR":
                        raise errors.from_status(obj)
                    yield kind, obj

    async def update(self, row: Resource, obj: Any, subresource: str = "", **options: Any) -> Any:
        path = path_of(row, obj.metadata.name, subresource)
        return await self._send("PUT", row, path, obj, options, 200)

    async def patch(
        self, row: Resource, name: str, how: str, body: Any, subresource: str = "", **options: Any
    ) -> Any:
        async with self._session.patch(
            path_of(row, name, subresource),
            params=query_of(options),
            data=orjson.dumps(body),
            headers={"Accept": self._media, "Content-Type": PATCHES[how]},
        ) as answer:
            return self._object(await answer.read(), answer, row.message, 200)

    async def delete(self, row: Resource, name: str, **options: Any) -> Any:
        asked = DeleteOptions(**options)
        async with self._session.delete(
            path_of(row, name),
            data=self._encoded(asked, "v1", "DeleteOptions"),
            headers={"Accept": self._media, "Content-Type": self._media},
        ) as answer:
            body = await answer.read()
            assert answer.content_type == self._media
            kind = self._kind(body)
            if answer.status != 200:
                raise self._error(body, answer.content_type)
            return self._decoded(body, Status if kind == "Status" else row.message)

    async def delete_collection(self, row: Resource, **options: Any) -> Page:
        return page_of(await self._send("DELETE", row, path_of(row), None, options, 200, row.list_message))

    async def _send(
        self,
        method: str,
        row: Resource,
        path: str,
        obj: Any,
        options: dict[str, Any],
        status: int,
        cls: Any = None,
    ) -> Any:
        data = None if obj is None else self._encoded(obj, row.api_version, row.kind)
        headers = {"Accept": self._media}
        if data is not None:
            headers["Content-Type"] = self._media
        async with self._session.request(
            method, path, params=query_of(options), data=data, headers=headers
        ) as answer:
            return self._object(await answer.read(), answer, cls or row.message, status)

    def _object(self, body: bytes, answer: Any, cls: Any, status: int) -> Any:
        assert answer.content_type == self._media
        if answer.status != status:
            error = self._error(body, answer.content_type)
            assert answer.status == error.code
            raise error
        return self._decoded(body, cls)

    def _error(self, body: bytes, media: str) -> errors.ApiError:
        assert media == self._media
        assert self._kind(body) == "Status"
        return errors.from_status(self._decoded(body, Status))

    def _encoded(self, obj: Message, api_version: str, kind: str) -> bytes:
        if self._media == PROTOBUF:
            return codec.encode_envelope(obj, api_version, kind)
        data = codec.encode_json(obj, api_version, kind)
        return data if self._media == JSON else yaml.safe_dump(orjson.loads(data)).encode()

    def _decoded(self, body: bytes, cls: Any) -> Any:
        if self._media == PROTOBUF:
            return codec.decode_protobuf(body, cls).message
        read = codec.decode_json if self._media == JSON else codec.decode_yaml
        decoded = read(body, cls, field_validation="Strict")
        assert decoded.kind == cls.DESCRIPTOR.name
        return decoded.message

    def _kind(self, body: bytes) -> str:
        if self._media == PROTOBUF:
            return codec.decode_envelope(body)[1]
        value = orjson.loads(body) if self._media == JSON else yaml.safe_load(body)
        return str(value["kind"])


async def _frames(content: Any, media: str, row: Resource) -> AsyncIterator[tuple[str, Any]]:
    if media == PROTOBUF:
        while head := await content.read(4):
            while len(head) < 4:
                head += await content.read(4 - len(head))
            event = meta_v1.WatchEvent.FromString(await content.readexactly(struct.unpack(">I", head)[0]))
            cls: Any = Status if event.type == "ERROR" else row.message
            yield event.type, codec.decode_protobuf(event.object.raw, cls).message
        return
    async for line in content:
        value = orjson.loads(line)
        cls = Status if value["type"] == "ERROR" else row.message
        assert value["object"]["kind"] == cls.DESCRIPTOR.name
        yield value["type"], codec.decode_json(orjson.dumps(value["object"]), cls).message


class GrpcWire:
    """The typed services."""

    def __init__(self, served: Served) -> None:
        self._transport = GrpcTransport([f"localhost:{served.grpc_port}"], served.credentials)

    async def close(self) -> None:
        await self._transport.close()

    async def create(self, row: Resource, obj: Any, **options: Any) -> Any:
        request = rpc_class(row, "CreateRequest")(
            namespace=namespace_of(row), object=obj, options=meta_v1.CreateOptions(**options)
        )
        return await self._call(row, "Create", request)

    async def get(self, row: Resource, name: str) -> Any:
        return await self._call(row, "Get", rpc.GetRequest(namespace=namespace_of(row), name=name))

    async def list(self, row: Resource, **options: Any) -> Page:
        request = rpc.ListRequest(namespace=namespace_of(row), options=ListOptions(**options))
        return page_of(await self._call(row, "List", request, row.list_message))

    async def watch(self, row: Resource, **options: Any) -> AsyncIterator[tuple[str, Any]]:
        request = rpc.ListRequest(namespace=namespace_of(row), options=ListOptions(**options))
        batches = self._transport.stream(f"/{row.service}/Watch", request, rpc_class(row, "WatchBatch"))
        async with aclosing(batches):  # type: ignore[type-var]
            async for batch in batches:
                answer: Any = batch
                for event in answer.events:
                    yield event.type, event.object
                if not answer.events or answer.synced:
                    mark: Any = row.message()
                    mark.metadata.resourceVersion = answer.resource_version
                    if answer.synced:
                        mark.metadata.annotations["k8s.io/initial-events-end"] = "true"
                    yield "BOOKMARK", mark

    async def update(self, row: Resource, obj: Any, subresource: str = "", **options: Any) -> Any:
        request = rpc_class(row, "UpdateRequest")(
            namespace=namespace_of(row), object=obj, options=meta_v1.UpdateOptions(**options)
        )
        return await self._call(row, "UpdateStatus" if subresource == "status" else "Update", request)

    async def patch(
        self, row: Resource, name: str, how: str, body: Any, subresource: str = "", **options: Any
    ) -> Any:
        request = rpc.PatchRequest(
            namespace=namespace_of(row),
            name=name,
            type=PATCHES[how],
            body=orjson.dumps(body),
            subresource=subresource,
            options=meta_v1.PatchOptions(**options),
        )
        return await self._call(row, "Patch", request)

    async def delete(self, row: Resource, name: str, **options: Any) -> Any:
        request = rpc.DeleteRequest(namespace=namespace_of(row), name=name, options=DeleteOptions(**options))
        answer: Any = await self._call(row, "Delete", request, rpc.DeleteResponse)
        if answer.HasField("object"):
            assert answer.object.typeMeta.kind == row.kind
            return row.message.FromString(answer.object.raw)
        return answer.status

    async def delete_collection(self, row: Resource, **options: Any) -> Page:
        request = rpc.DeleteCollectionRequest(
            namespace=namespace_of(row), list_options=ListOptions(**options)
        )
        return page_of(await self._call(row, "DeleteCollection", request, row.list_message))

    async def _call(self, row: Resource, verb: str, request: Any, cls: Any = None) -> Any:
        return await self._transport.call(f"/{row.service}/{verb}", request, cls or row.message)
