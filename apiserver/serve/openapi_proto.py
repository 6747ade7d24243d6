"""OpenAPI documents in protobuf (gnostic's openapi.v2 and openapi.v3 messages).

Only what clients read of them: paths with their operations, query parameters and
group-version-kind extensions, and named schemas. Written field by field on the wire form, since
nothing else here needs these messages.
"""

from __future__ import annotations

from typing import Any

import yaml

from podyard.api.codec_proto import varint

_METHODS_V3 = {"get": 4, "put": 5, "post": 6, "delete": 7, "options": 8, "head": 9, "patch": 10}
_METHODS_V2 = {"get": 2, "put": 3, "post": 4, "delete": 5, "options": 6, "head": 7, "patch": 8}


def delimited(number: int, data: bytes) -> bytes:
    """A length-delimited field of any number."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def _text(number: int, value: str) -> bytes:
    return delimited(number, value.encode())


def _flag(number: int, value: bool) -> bytes:
    return varint(number << 3) + (b"\1" if value else b"\0") if value else b""


def _named(number: int, name: str, value: bytes) -> bytes:
    """A Named… entry: 1 name, 2 value."""
    return delimited(number, _text(1, name) + delimited(2, value))


def _extensions(number: int, item: dict[str, Any]) -> bytes:
    """NamedAny entries: 2 value is Any with 2 yaml."""
    return b"".join(
        _named(number, name, _text(2, yaml.safe_dump(value)))
        for name, value in item.items()
        if name.startswith("x-")
    )


# Version 3: openapi.v3.Document.


def encode_v3(spec: dict[str, Any]) -> bytes:
    """A v3 document: 1 openapi, 2 info, 4 paths, 5 components."""
    paths = b"".join(_named(1, path, _path_v3(item)) for path, item in spec["paths"].items())
    schemas = b"".join(
        _named(1, name, delimited(1, _schema_v3(schema)))
        for name, schema in spec["components"]["schemas"].items()
    )
    info = _text(1, spec["info"]["title"]) + _text(6, spec["info"]["version"])
    return (
        _text(1, spec["openapi"])
        + delimited(2, info)
        + delimited(4, paths)
        + delimited(5, delimited(1, schemas))
    )


def _path_v3(item: dict[str, Any]) -> bytes:
    made = [
        delimited(number, _operation_v3(item[name])) for name, number in _METHODS_V3.items() if name in item
    ]
    made += [delimited(13, delimited(1, _parameter_v3(entry))) for entry in item.get("parameters", ())]
    return b"".join(made)


def _operation_v3(operation: dict[str, Any]) -> bytes:
    made = [_text(1, tag) for tag in operation["tags"]]
    made.append(_text(5, operation["operationId"]))
    made += [delimited(6, delimited(1, _parameter_v3(entry))) for entry in operation["parameters"]]
    if "requestBody" in operation:
        body = operation["requestBody"]
        made.append(delimited(7, delimited(1, delimited(2, _content_v3(body["content"])) + _flag(3, True))))
    responses = b""
    for code, response in operation["responses"].items():
        value = _text(1, response["description"])
        if "content" in response:
            value += delimited(3, _content_v3(response["content"]))
        responses += _named(2, code, delimited(1, value))
    made.append(delimited(8, responses))
    made.append(_extensions(13, operation))
    return b"".join(made)


def _content_v3(content: dict[str, Any]) -> bytes:
    return b"".join(
        _named(1, kind, delimited(1, _either_v3(entry["schema"]))) for kind, entry in content.items()
    )


def _parameter_v3(entry: dict[str, Any]) -> bytes:
    made = _text(1, entry["name"]) + _text(2, entry["in"]) + _flag(4, entry.get("required", False))
    return made + delimited(10, _either_v3(entry["schema"]))


def _either_v3(schema: dict[str, Any]) -> bytes:
    """SchemaOrReference: 1 schema, 2 reference."""
    if "$ref" in schema:
        assert len(schema) == 1, f"nothing can stand beside a reference: {schema}"
        return delimited(2, _text(1, schema["$ref"]))
    return delimited(1, _schema_v3(schema))


# Keys that a schema of version 3 may have here; anything else would be lost on the way.
_SCHEMA_V3 = frozenset(
    {
        "description",
        "uniqueItems",
        "required",
        "enum",
        "type",
        "allOf",
        "oneOf",
        "items",
        "properties",
        "additionalProperties",
        "format",
    }
)


def _schema_v3(schema: dict[str, Any]) -> bytes:
    """Source: gnostic's OpenAPIv3.proto, whose numbers are not those of version 2."""
    _refuse_unknown(schema, _SCHEMA_V3)
    made = _flag(20, schema.get("uniqueItems", False))
    made += b"".join(_text(23, name) for name in schema.get("required", ()))
    made += b"".join(delimited(24, _text(2, yaml.safe_dump(value))) for value in schema.get("enum", ()))
    made += _text(25, schema["type"]) if "type" in schema else b""
    made += b"".join(delimited(26, _either_v3(part)) for part in schema.get("allOf", ()))
    made += b"".join(delimited(27, _either_v3(choice)) for choice in schema.get("oneOf", ()))
    if "items" in schema:
        made += delimited(30, delimited(1, _either_v3(schema["items"])))
    if "properties" in schema:
        entries = b"".join(_named(1, name, _either_v3(value)) for name, value in schema["properties"].items())
        made += delimited(31, entries)
    if "additionalProperties" in schema:
        made += delimited(32, delimited(1, _either_v3(schema["additionalProperties"])))
    if "description" in schema:
        made += _text(34, schema["description"])
    if "format" in schema:
        made += _text(35, schema["format"])
    return made + _extensions(36, schema)


def _refuse_unknown(schema: dict[str, Any], known: frozenset[str]) -> None:
    unknown = {key for key in schema if key not in known and not key.startswith("x-")}
    assert not unknown, f"not written in protobuf: {sorted(unknown)}"


# Version 2: openapi.v2.Document.


def encode_v2(spec: dict[str, Any]) -> bytes:
    """A v2 document: 1 swagger, 2 info, 8 paths, 9 definitions."""
    paths = b"".join(_named(2, path, _path_v2(item)) for path, item in spec["paths"].items())
    schemas = b"".join(_named(1, name, _schema_v2(schema)) for name, schema in spec["definitions"].items())
    info = _text(1, spec["info"]["title"]) + _text(2, spec["info"]["version"])
    return _text(1, spec["swagger"]) + delimited(2, info) + delimited(8, paths) + delimited(9, schemas)


def _path_v2(item: dict[str, Any]) -> bytes:
    made = [
        delimited(number, _operation_v2(item[name])) for name, number in _METHODS_V2.items() if name in item
    ]
    made += [delimited(9, _parameter_v2(entry)) for entry in item.get("parameters", ())]
    return b"".join(made)


def _operation_v2(operation: dict[str, Any]) -> bytes:
    made = [_text(1, tag) for tag in operation["tags"]]
    made.append(_text(5, operation["operationId"]))
    made += [_text(7, kind) for kind in operation.get("consumes", ())]
    made += [delimited(8, _parameter_v2(entry)) for entry in operation["parameters"]]
    responses = b""
    for code, response in operation["responses"].items():
        value = _text(1, response["description"])
        if "schema" in response:
            value += delimited(2, delimited(1, _schema_v2(response["schema"])))
        responses += _named(1, code, delimited(1, value))
    made.append(delimited(9, responses))
    made.append(_extensions(13, operation))
    return b"".join(made)


def _parameter_v2(entry: dict[str, Any]) -> bytes:
    """ParametersItem: 1 parameter, which is 1 a body or 2 a simple one of its place."""
    name, place = entry["name"], entry["in"]
    if place == "body":
        body = _text(2, name) + _text(3, "body") + _flag(4, True) + delimited(5, _schema_v2(entry["schema"]))
        return delimited(1, delimited(1, body))
    required = _flag(1, entry.get("required", False))
    if place == "path":
        simple = delimited(4, required + _text(2, "path") + _text(4, name) + _text(5, entry["type"]))
    else:
        simple = delimited(3, required + _text(2, "query") + _text(4, name) + _text(6, entry["type"]))
    return delimited(1, delimited(2, simple))


_SCHEMA_V2 = (_SCHEMA_V3 - {"allOf", "oneOf"}) | {"$ref"}


def _schema_v2(schema: dict[str, Any]) -> bytes:
    _refuse_unknown(schema, _SCHEMA_V2)
    made = _text(1, schema["$ref"]) if "$ref" in schema else b""
    made += _text(2, schema["format"]) if "format" in schema else b""
    made += _text(4, schema["description"]) if "description" in schema else b""
    made += _flag(16, schema.get("uniqueItems", False))
    made += b"".join(_text(19, name) for name in schema.get("required", ()))
    made += b"".join(delimited(20, _text(2, yaml.safe_dump(value))) for value in schema.get("enum", ()))
    if "additionalProperties" in schema:
        made += delimited(21, delimited(1, _schema_v2(schema["additionalProperties"])))
    if "type" in schema:
        made += delimited(22, _text(1, schema["type"]))
    if "items" in schema:
        made += delimited(23, delimited(1, _schema_v2(schema["items"])))
    if "properties" in schema:
        entries = b"".join(_named(1, name, _schema_v2(value)) for name, value in schema["properties"].items())
        made += delimited(25, entries)
    return made + _extensions(31, schema)
