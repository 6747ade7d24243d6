"""OpenAPI v2 and v3, made from the resource table and the field table.

kubectl reads them to explain kinds and to learn that the server validates fields. Schemas are
named and shaped as upstream's; what they say of messages and fields is our own and stands in
`descriptions.tsv`. Each document is made when first asked for and kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

import orjson

from apiserver.serve import openapi_proto
from apiserver.serve.negotiate import JSON, parse_accept
from podyard.api import descriptions, facts
from podyard.api.facts import FieldFact
from podyard.api.resources import OFFERED, Resource

_META = "k8s.io.apimachinery.pkg.apis.meta.v1"
_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_V2_PROTOBUF_ACCEPT = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_V3_PROTOBUF = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
_V3_PROTOBUF_ACCEPT = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"

# Messages whose JSON is not the plain walk over their fields.
_SPECIAL: dict[str, dict[str, Any]] = {
    "k8s.io.apimachinery.pkg.api.resource.Quantity": {"type": "string"},
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": {"type": "string", "format": "int-or-string"},
    f"{_META}.Time": {"type": "string", "format": "date-time"},
    f"{_META}.MicroTime": {"type": "string", "format": "date-time"},
    f"{_META}.Duration": {"type": "string"},
    f"{_META}.FieldsV1": {"type": "object"},
    "k8s.io.apimachinery.pkg.runtime.RawExtension": {"type": "object"},
}
# What version 3 has other words for: 2 knows no alternatives.
_SPECIAL_V3: dict[str, dict[str, Any]] = {
    "k8s.io.apimachinery.pkg.api.resource.Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": {
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
}
_DEFINITIONS = "#/definitions/"
_COMPONENTS = "#/components/schemas/"
_SCALARS: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "uint32": {"type": "integer", "format": "int64"},
    "double": {"type": "number", "format": "double"},
}
_LISTS_OF_STRINGS = frozenset({f"{_META}.Verbs", "k8s.io.api.authentication.v1.ExtraValue"})
_QUERY = {
    "list": (
        "allowWatchBookmarks",
        "continue",
        "fieldSelector",
        "labelSelector",
        "limit",
        "resourceVersion",
        "resourceVersionMatch",
        "sendInitialEvents",
        "timeoutSeconds",
        "watch",
    ),
    "post": ("dryRun", "fieldManager", "fieldValidation"),
    "put": ("dryRun", "fieldManager", "fieldValidation"),
    "patch": ("dryRun", "fieldManager", "fieldValidation", "force"),
    "delete": (
        "dryRun",
        "gracePeriodSeconds",
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "orphanDependents",
        "propagationPolicy",
    ),
}
_BOOLEANS = frozenset(
    {
        "allowWatchBookmarks",
        "sendInitialEvents",
        "watch",
        "force",
        "orphanDependents",
        "ignoreStoreReadErrorWithClusterBreakingPotential",
    }
)
_INTEGERS = frozenset({"limit", "timeoutSeconds", "gracePeriodSeconds"})
_BODY_TYPES = (JSON, "application/yaml", "application/vnd.kubernetes.protobuf")
_PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)


class Document(NamedTuple):
    """A document ready to be sent."""

    body: bytes
    content_type: str
    etag: str


def document(path: str, accept: str) -> Document | None:
    """The document at a path below /openapi; None when there is none.

    Args:
        accept: the Accept header; protobuf and JSON are served.
    """
    wanted = [entry.type for entry in parse_accept(accept)]
    if path == "/openapi/v2":
        return _v2(protobuf=_V2_PROTOBUF_ACCEPT in wanted or _V2_PROTOBUF in wanted)
    if path == "/openapi/v3":
        return _v3_index()
    version = path.removeprefix("/openapi/v3/")
    if version in _group_versions():
        return _v3(version, protobuf=_V3_PROTOBUF_ACCEPT in wanted or _V3_PROTOBUF in wanted)
    return None


@cache
def _group_versions() -> dict[str, tuple[Resource, ...]]:
    """`api/v1` or `apis/GROUP/VERSION` -> rows."""
    found: dict[str, list[Resource]] = {}
    for row in OFFERED:
        found.setdefault(f"api{'s' if row.group else ''}/{row.api_version}", []).append(row)
    return {version: tuple(rows) for version, rows in found.items()}


def _made(body: bytes, content_type: str) -> Document:
    return Document(body, content_type, f'"{hashlib.sha512(body).hexdigest().upper()}"')


@cache
def _v3_index() -> Document:
    paths = {
        version: {
            "serverRelativeURL": f"/openapi/v3/{version}?hash={_v3(version, protobuf=False).etag[1:-1]}"
        }
        for version in _group_versions()
    }
    return _made(orjson.dumps({"paths": paths}), JSON)


@cache
def _v3(version: str, *, protobuf: bool) -> Document:
    rows = _group_versions()[version]
    spec = {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": _paths(rows, _COMPONENTS, v3=True),
        "components": {"schemas": _schemas(rows, _COMPONENTS)},
    }
    if protobuf:
        return _made(openapi_proto.encode_v3(spec), _V3_PROTOBUF)
    return _made(orjson.dumps(spec), JSON)


@cache
def _v2(*, protobuf: bool) -> Document:
    spec = {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": _paths(OFFERED, _DEFINITIONS, v3=False),
        "definitions": _schemas(OFFERED, _DEFINITIONS),
    }
    if protobuf:
        return _made(openapi_proto.encode_v2(spec), _V2_PROTOBUF)
    return _made(orjson.dumps(spec), JSON)


# Schemas.


def _schemas(rows: Iterable[Resource], prefix: str) -> dict[str, Any]:
    """Every schema that the rows need, by its name."""
    todo = [f"{_META}.DeleteOptions", f"{_META}.Status", f"{_META}.WatchEvent", f"{_META}.APIResourceList"]
    for row in rows:
        todo += [row.message.DESCRIPTOR.full_name, row.list_message.DESCRIPTOR.full_name]
        todo += [fact for part in row.subresources.values() for fact in _messages_of(part.kind)]
    done: dict[str, Any] = {}
    kinds = _kinds()
    while todo:
        full_name = todo.pop()
        name = _schema_name(full_name)
        if name in done:
            continue
        done[name] = _schema(full_name, prefix, kinds)
        todo.extend(_referred(full_name))
    return {f"{_patch_name()}": {"type": "object"}, **dict(sorted(done.items()))}


def _patch_name() -> str:
    return _schema_name(f"{_META}.Patch")


def _messages_of(kind: str) -> list[str]:
    return [fact.full_name for fact in facts.messages().values() if fact.gvk.endswith(f"/{kind}")][:1]


@cache
def _kinds() -> dict[str, list[dict[str, str]]]:
    """Full message name -> its group-version-kinds."""
    found: dict[str, list[dict[str, str]]] = {}
    for fact in facts.messages().values():
        if fact.gvk:
            api_version, _, kind = fact.gvk.rpartition("/")
            group, _, version = api_version.rpartition("/")
            found.setdefault(fact.full_name, []).append({"group": group, "kind": kind, "version": version})
    return found


def _schema_name(full_name: str) -> str:
    fact = facts.messages().get(full_name)
    if fact is not None and fact.openapi_name:
        return fact.openapi_name
    return "io." + full_name


def _referred(full_name: str) -> Iterator[str]:
    if full_name in _SPECIAL or full_name in _LISTS_OF_STRINGS:
        return
    for field in facts.fields().get(full_name, ()):
        for part in field.type.split(","):
            if part not in _SCALARS:
                yield part


def has_fields(full_name: str) -> bool:
    """Whether a message's schema shows its fields; others are a text, a number or anything at all."""
    return full_name not in _SPECIAL and full_name not in _LISTS_OF_STRINGS


def _schema(full_name: str, prefix: str, kinds: dict[str, list[dict[str, str]]]) -> dict[str, Any]:
    said = _described(full_name)
    if prefix == _COMPONENTS and full_name in _SPECIAL_V3:
        return _SPECIAL_V3[full_name] | said
    if full_name in _SPECIAL:
        return _SPECIAL[full_name] | said
    if full_name in _LISTS_OF_STRINGS:
        return {"type": "array", "items": {"type": "string"}} | said
    properties: dict[str, Any] = {}
    required: list[str] = []
    fact = facts.messages().get(full_name)
    if fact is not None and fact.has_typemeta:
        for name in ("apiVersion", "kind"):
            properties[name] = {"type": "string"} | _described(full_name, name)
    _add_properties(full_name, prefix, properties, required)
    schema: dict[str, Any] = {"type": "object", "properties": dict(sorted(properties.items()))} | said
    if not properties:
        del schema["properties"]
    if required:
        schema["required"] = sorted(required)
    if fact is not None and fact.struct_type == "atomic":
        schema["x-kubernetes-map-type"] = "atomic"
    if full_name in kinds:
        schema["x-kubernetes-group-version-kind"] = kinds[full_name]
    return schema


def _described(full_name: str, field: str = "") -> dict[str, Any]:
    text = descriptions.of(full_name, field)
    return {"description": text} if text else {}


def _add_properties(full_name: str, prefix: str, properties: dict[str, Any], required: list[str]) -> None:
    for field in facts.fields().get(full_name, ()):
        if field.inline:
            _add_properties(field.type, prefix, properties, required)
            continue
        properties[field.json_name] = _property(field, prefix, _described(full_name, field.json_name))
        if field.required:
            required.append(field.json_name)


def _property(field: FieldFact, prefix: str, said: dict[str, Any]) -> dict[str, Any]:
    if field.label == "map":
        shape: dict[str, Any] = {
            "type": "object",
            "additionalProperties": _reference(field.type.split(",")[1], prefix),
        }
    elif field.label == "repeated":
        shape = {"type": "array", "items": _reference(field.type, prefix)}
        if field.list_type:
            shape["x-kubernetes-list-type"] = field.list_type
        if field.list_map_keys:
            shape["x-kubernetes-list-map-keys"] = list(field.list_map_keys)
    else:
        shape = _reference(field.type, prefix)
    if field.patch_merge_key:
        shape["x-kubernetes-patch-merge-key"] = field.patch_merge_key
    if field.patch_strategy:
        shape["x-kubernetes-patch-strategy"] = ",".join(field.patch_strategy)
    if field.enum_closed and field.enum_values and field.type == "string" and field.label == "optional":
        shape["enum"] = sorted(field.enum_values)
    shape |= said
    if prefix == _COMPONENTS and "$ref" in shape and len(shape) > 1:
        # In version 3 what stands beside a reference counts for nothing, and protobuf has no place for it.
        shape["allOf"] = [{"$ref": shape.pop("$ref")}]
    return shape


def _reference(type_name: str, prefix: str) -> dict[str, Any]:
    if type_name in _SCALARS:
        return dict(_SCALARS[type_name])
    return {"$ref": prefix + _schema_name(type_name)}


# Paths.


def _paths(rows: Iterable[Resource], prefix: str, *, v3: bool) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for row in rows:
        root = f"/api{'s' if row.group else ''}/{row.api_version}"
        inside = f"{root}/namespaces/{{namespace}}/{row.plural}" if row.namespaced else f"{root}/{row.plural}"
        verbs = set(row.verbs)
        paths[inside] = _operations(
            row,
            prefix,
            v3,
            row.namespaced,
            {
                "get": "list" if "list" in verbs else None,
                "post": "post" if "create" in verbs else None,
                "delete": "deletecollection" if "deletecollection" in verbs else None,
            },
        )
        if row.is_review:
            continue
        paths[f"{inside}/{{name}}"] = _operations(
            row,
            prefix,
            v3,
            row.namespaced,
            {
                "get": "get" if "get" in verbs else None,
                "put": "put" if "update" in verbs else None,
                "patch": "patch" if "patch" in verbs else None,
                "delete": "delete" if "delete" in verbs else None,
            },
            named=True,
        )
        if row.namespaced and "list" in verbs:
            paths[f"{root}/{row.plural}"] = _operations(row, prefix, v3, False, {"get": "list"})
        for name, part in row.subresources.items():
            methods = {"get": "get", "create": "post", "update": "put", "patch": "patch"}
            wanted: dict[str, str | None] = {methods[v]: methods[v] for v in part.verbs if v in methods}
            paths[f"{inside}/{{name}}/{name}"] = _operations(
                row, prefix, v3, row.namespaced, wanted, named=True
            )
    return dict(sorted(paths.items()))


def _operations(
    row: Resource,
    prefix: str,
    v3: bool,
    namespaced: bool,
    actions: dict[str, str | None],
    *,
    named: bool = False,
) -> dict[str, Any]:
    item: dict[str, Any] = {}
    for method, action in actions.items():
        if action is not None:
            item[method] = _operation(row, prefix, v3, method, action)
    names = (["name"] if named else []) + (["namespace"] if namespaced else [])
    item["parameters"] = [
        *(_parameter(name, "path", v3, required=True) for name in names),
        _parameter("pretty", "query", v3),
    ]
    return item


def _operation(row: Resource, prefix: str, v3: bool, method: str, action: str) -> dict[str, Any]:
    own = prefix + _schema_name(row.message.DESCRIPTOR.full_name)
    answer = prefix + _schema_name(row.list_message.DESCRIPTOR.full_name) if action == "list" else own
    if method == "delete" and not (action == "delete" and row.shows_deleted):
        answer = prefix + _schema_name(f"{_META}.Status")
    operation: dict[str, Any] = {
        "tags": [f"{row.group.partition('.')[0] or 'core'}_{row.version}"],
        "operationId": f"{action}{row.version.capitalize()}{row.kind}",
        "parameters": [
            _parameter(name, "query", v3) for name in _QUERY.get("list" if action == "list" else method, ())
        ],
        "responses": {"200": _response(answer, v3), "401": {"description": "Unauthorized"}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": row.group, "kind": row.kind, "version": row.version},
    }
    body = {"post": own, "put": own, "patch": prefix + _patch_name()}.get(method)
    if method == "delete":
        body = prefix + _schema_name(f"{_META}.DeleteOptions")
    if body is not None:
        _add_body(operation, body, v3, _PATCH_TYPES if method == "patch" else ("*/*",))
    return operation


def _add_body(operation: dict[str, Any], reference: str, v3: bool, types: tuple[str, ...]) -> None:
    if v3:
        content = {kind: {"schema": {"$ref": reference}} for kind in types}
        operation["requestBody"] = {"content": content, "required": True}
    else:
        operation["consumes"] = list(types)
        body = {"name": "body", "in": "body", "required": True, "schema": {"$ref": reference}}
        operation["parameters"] = [body, *operation["parameters"]]


def _response(reference: str, v3: bool) -> dict[str, Any]:
    if v3:
        return {
            "description": "OK",
            "content": {kind: {"schema": {"$ref": reference}} for kind in _BODY_TYPES},
        }
    return {"description": "OK", "schema": {"$ref": reference}}


def _parameter(name: str, place: str, v3: bool, *, required: bool = False) -> dict[str, Any]:
    kind = "boolean" if name in _BOOLEANS else "integer" if name in _INTEGERS else "string"
    shape: dict[str, Any] = {"name": name, "in": place}
    if required:
        shape["required"] = True
    return shape | (
        {"schema": {"type": kind, "uniqueItems": True}} if v3 else {"type": kind, "uniqueItems": True}
    )
