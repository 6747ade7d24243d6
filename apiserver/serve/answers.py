"""Answers: objects, lists, tables, partial metadata and statuses in each media type, pure.

JSON of an object is made once a revision and kept by the cache; a list joins what is there.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Protocol

import orjson

from apiserver.serve.negotiate import JSON, PROTOBUF, YAML, Form
from podyard.api import codec, columns, yaml_json
from podyard.api.resources import Resource
from podyard.api.types import Status, meta_v1

META_GROUP = "meta.k8s.io"
TABLE = "Table"
PARTIAL = "PartialObjectMetadata"
PARTIAL_LIST = "PartialObjectMetadataList"
OBJECT_FORMS = frozenset({TABLE, PARTIAL})
LIST_FORMS = frozenset({TABLE, PARTIAL_LIST})
_PARTIAL_VERSION = "meta.k8s.io/v1"
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
LIST_BLUEPRINT = "kubernetes.io/initial-events-list-blueprint"


class Described(Protocol):
    """What an answer must know of a kind: a resource's row, or the kind of a subresource of its own."""

    @property
    def kind(self) -> str:
        """Its name."""

    @property
    def api_version(self) -> str:
        """`v1` or `apps/v1`."""

    @property
    def message(self) -> type[Any]:
        """Its class."""


def encode(value: Any, media: str) -> bytes:
    """Plain data as JSON or YAML."""
    if media == YAML:
        return yaml_json.dump(value)
    return orjson.dumps(value)


def status_body(status: Status, media: str) -> bytes:
    """A Status as an answer's body."""
    if media == PROTOBUF:
        return codec.encode_envelope(status, "v1", "Status")
    body = codec.encode_json(status, "v1", "Status")
    return encode(orjson.loads(body), YAML) if media == YAML else body + b"\n"


def object_body(row: Described, item: Any, form: Form, *, now_s: float, include_object: str = "") -> bytes:
    """One object as an answer's body. `item` has it as `message`, `json` and `raw`."""
    if form.as_kind == TABLE:
        return encode(table(row, [item], now_s=now_s, include_object=include_object), form.media)
    if form.as_kind == PARTIAL:
        if form.media == PROTOBUF:
            partial = meta_v1.PartialObjectMetadata(metadata=item.message.metadata)
            return codec.encode_envelope(partial, _PARTIAL_VERSION, PARTIAL)
        return encode(partial_metadata(item), form.media)
    if form.media == PROTOBUF:
        return codec.envelope(item.raw, row.api_version, row.kind)
    return encode(orjson.loads(item.json), YAML) if form.media == YAML else item.json + b"\n"


def plain_body(raw: bytes, json: bytes, api_version: str, kind: str, media: str) -> bytes:
    """An object that is no row's kind and has no other forms, such as a TokenRequest, as an answer's body."""
    if media == PROTOBUF:
        return codec.envelope(raw, api_version, kind)
    return encode(orjson.loads(json), YAML) if media == YAML else json + b"\n"


def list_body(row: Resource, listed: Any, form: Form, *, now_s: float, include_object: str = "") -> bytes:
    """A list as an answer's body. `listed` is the registry's ListResult."""
    metadata: dict[str, Any] = {"resourceVersion": listed.resource_version}
    if listed.continue_token:
        metadata["continue"] = listed.continue_token
    if listed.remaining is not None:
        metadata["remainingItemCount"] = listed.remaining
    if form.as_kind == TABLE:
        made = table(row, listed.items, now_s=now_s, include_object=include_object)
        made["metadata"] = metadata
        return encode(made, form.media)
    if form.as_kind == PARTIAL_LIST:
        return _partial_list(listed, metadata, form.media)
    if form.media == PROTOBUF:
        raw = codec.join_list(
            row.list_message,
            [item.raw for item in listed.items],
            listed.resource_version,
            listed.continue_token,
            listed.remaining,
        )
        return codec.envelope(raw, row.api_version, row.list_kind)
    head = orjson.dumps({"kind": row.list_kind, "apiVersion": row.api_version, "metadata": metadata})
    items = b",".join(untyped(row, item.json) for item in listed.items)
    body = head[:-1] + b',"items":[' + items + b"]}\n"
    return encode(orjson.loads(body), YAML) if form.media == YAML else body


def untyped(row: Resource, body: bytes) -> bytes:
    """An object's JSON without kind and apiVersion: so upstream writes the items of a list."""
    prefix = b'{"kind":"%s","apiVersion":"%s",' % (row.kind.encode(), row.api_version.encode())
    return b"{" + body[len(prefix) :] if body.startswith(prefix) else body


def partial_metadata(item: Any) -> dict[str, Any]:
    """PartialObjectMetadata as plain data."""
    return {
        "kind": PARTIAL,
        "apiVersion": _PARTIAL_VERSION,
        "metadata": codec.to_dict(item.message.metadata),
    }


def _partial_list(listed: Any, metadata: dict[str, Any], media: str) -> bytes:
    if media == PROTOBUF:
        answer = meta_v1.PartialObjectMetadataList()
        answer.metadata.resourceVersion = listed.resource_version
        setattr(answer.metadata, "continue", listed.continue_token)
        for item in listed.items:
            answer.items.add().metadata.CopyFrom(item.message.metadata)
        return codec.encode_envelope(answer, _PARTIAL_VERSION, PARTIAL_LIST)
    items = [{"metadata": codec.to_dict(item.message.metadata)} for item in listed.items]
    body = {"kind": PARTIAL_LIST, "apiVersion": _PARTIAL_VERSION, "metadata": metadata, "items": items}
    return encode(body, media)


def table(
    row: Described, items: Sequence[Any], *, now_s: float, include_object: str = "", with_columns: bool = True
) -> dict[str, Any]:
    """A Table as plain data.

    Args:
        items: cached objects.
        include_object: "None", "Metadata" (the default) or "Object".
        with_columns: later events of a watch leave the definitions out.
    """
    made = columns.table(row, [item.message for item in items], now_s)
    for cells, item in zip(made["rows"], items, strict=True):
        if include_object == "Object":
            cells["object"] = orjson.loads(item.json)
        elif include_object == "None":
            cells["object"] = None
        else:
            cells["object"] = partial_metadata(item)
    if not with_columns:
        made["columnDefinitions"] = None
    metadata = {"resourceVersion": items[0].message.metadata.resourceVersion} if len(items) == 1 else {}
    return {"kind": TABLE, "apiVersion": _PARTIAL_VERSION, "metadata": metadata, **made}


def list_blueprint(row: Resource, media: str) -> str:
    """What the closing bookmark of initial events carries: an empty list, base64."""
    if media == PROTOBUF:
        body = codec.encode_envelope(row.list_message(), row.api_version, row.list_kind)
    else:
        empty = {"kind": row.list_kind, "apiVersion": row.api_version, "metadata": {}, "items": []}
        body = orjson.dumps(empty) + b"\n"
    return base64.b64encode(body).decode()


def bookmark(row: Resource, revision: int, *, initial_events_end: bool, media: str) -> dict[str, Any]:
    """The object of a BOOKMARK event as plain data."""
    metadata: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
    if initial_events_end:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true", LIST_BLUEPRINT: list_blueprint(row, media)}
    return {"kind": row.kind, "apiVersion": row.api_version, "metadata": metadata}


def form_media(form: Form) -> str:
    return JSON if form.as_kind == TABLE and form.media == PROTOBUF else form.media
