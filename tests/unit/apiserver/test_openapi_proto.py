"""OpenAPI in protobuf says of every schema what the same document in JSON says."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
import yaml
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

from apiserver.serve import openapi, openapi_proto

V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
V3 = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
TEXT, FLAG = "string", "bool"
# message -> field -> (number, type, repeated): what gnostic's files give, as far as it is read here.
MESSAGES_V3: dict[str, dict[str, tuple[int, str, bool]]] = {
    "Document": {"openapi": (1, TEXT, False), "components": (5, "Components", False)},
    "Components": {"schemas": (1, "Schemas", False)},
    "Schemas": {"entries": (1, "Named", True)},
    "Named": {"name": (1, TEXT, False), "value": (2, "Either", False)},
    "Either": {"schema": (1, "Schema", False), "reference": (2, "Reference", False)},
    "Reference": {"ref": (1, TEXT, False)},
    "Any": {"yaml": (2, TEXT, False)},
    "NamedAny": {"name": (1, TEXT, False), "value": (2, "Any", False)},
    "Items": {"either": (1, "Either", True)},
    "Additional": {"either": (1, "Either", False)},
    "Schema": {
        "uniqueItems": (20, FLAG, False),
        "required": (23, TEXT, True),
        "enum": (24, "Any", True),
        "type": (25, TEXT, False),
        "allOf": (26, "Either", True),
        "oneOf": (27, "Either", True),
        "items": (30, "Items", False),
        "properties": (31, "Schemas", False),
        "additionalProperties": (32, "Additional", False),
        "description": (34, TEXT, False),
        "format": (35, TEXT, False),
        "extensions": (36, "NamedAny", True),
    },
}
MESSAGES_V2: dict[str, dict[str, tuple[int, str, bool]]] = {
    "Document": {"swagger": (1, TEXT, False), "definitions": (9, "Schemas", False)},
    "Schemas": {"entries": (1, "Named", True)},
    "Named": {"name": (1, TEXT, False), "value": (2, "Schema", False)},
    "Any": {"yaml": (2, TEXT, False)},
    "NamedAny": {"name": (1, TEXT, False), "value": (2, "Any", False)},
    "Type": {"value": (1, TEXT, True)},
    "Items": {"schema": (1, "Schema", True)},
    "Additional": {"schema": (1, "Schema", False)},
    "Schema": {
        "ref": (1, TEXT, False),
        "format": (2, TEXT, False),
        "description": (4, TEXT, False),
        "uniqueItems": (16, FLAG, False),
        "required": (19, TEXT, True),
        "enum": (20, "Any", True),
        "additionalProperties": (21, "Additional", False),
        "type": (22, "Type", False),
        "items": (23, "Items", False),
        "properties": (25, "Schemas", False),
        "extensions": (31, "NamedAny", True),
    },
}


def document_class(package: str, messages: dict[str, dict[str, tuple[int, str, bool]]]) -> type[Message]:
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    plain = {TEXT: kinds.TYPE_STRING, FLAG: kinds.TYPE_BOOL}
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, repeated) in fields.items():
            row = message.field.add(name=field, number=number)
            row.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            row.type = plain.get(kind, kinds.TYPE_MESSAGE)
            if kind not in plain:
                row.type_name = f".{package}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Document"))


def plain_schema(schema: Any) -> dict[str, Any]:
    """A schema as it stands in JSON."""
    out: dict[str, Any] = {}
    for field, value in schema.ListFields():
        match field.name:
            case "ref":
                out["$ref"] = value
            case "required":
                out["required"] = list(value)
            case "enum":
                out["enum"] = [yaml.safe_load(each.yaml) for each in value]
            case "oneOf" | "allOf":
                out[field.name] = [plain(each) for each in value]
            case "type":
                out["type"] = value if isinstance(value, str) else value.value[0]
            case "items":
                out["items"] = plain((list(value.either) if hasattr(value, "either") else value.schema)[0])
            case "additionalProperties":
                out["additionalProperties"] = plain(
                    value.either if hasattr(value, "either") else value.schema
                )
            case "properties":
                out["properties"] = {entry.name: plain(entry.value) for entry in value.entries}
            case "extensions":
                out |= {entry.name: yaml.safe_load(entry.value.yaml) for entry in value}
            case _:
                out[field.name] = value
    return out


def plain(either: Any) -> dict[str, Any]:
    if either.DESCRIPTOR.name == "Schema":
        return plain_schema(either)
    if either.HasField("reference"):
        return {"$ref": either.reference.ref}
    return plain_schema(either.schema)


def read(path: str, kind: str) -> bytes:
    found = openapi.document(path, kind)
    assert found is not None
    return found.body


def test_every_schema_of_version_3() -> None:
    document = document_class("v3", MESSAGES_V3)
    keys = set()
    for path in orjson.loads(read("/openapi/v3", "application/json"))["paths"]:
        told = orjson.loads(read(f"/openapi/v3/{path}", "application/json"))["components"]["schemas"]
        made: Any = document.FromString(read(f"/openapi/v3/{path}", V3))
        assert {entry.name: plain(entry.value) for entry in made.components.schemas.entries} == told
        keys |= {key for schema in told.values() for key in schema}
    assert keys >= {"oneOf", "format", "required", "properties", "type"}


def test_every_schema_of_version_2() -> None:
    told = orjson.loads(read("/openapi/v2", "application/json"))["definitions"]
    made: Any = document_class("v2", MESSAGES_V2).FromString(read("/openapi/v2", V2))
    assert {entry.name: plain(entry.value) for entry in made.definitions.entries} == told


@pytest.mark.parametrize("encode", [openapi_proto._schema_v2, openapi_proto._schema_v3])
def test_what_would_be_lost_is_refused(encode: Any) -> None:
    with pytest.raises(AssertionError, match="anyOf"):
        encode({"anyOf": [{"type": "string"}], "x-kubernetes-int-or-string": True})


def test_what_stands_beside_a_reference_is_not_lost() -> None:
    told = orjson.loads(read("/openapi/v3/apis/apps/v1", "application/json"))["components"]["schemas"]
    strategy = told["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["strategy"]
    assert strategy.pop("description")
    assert strategy == {
        "allOf": [{"$ref": "#/components/schemas/io.k8s.api.apps.v1.DeploymentStrategy"}],
        "x-kubernetes-patch-strategy": "retainKeys",
    }
    with pytest.raises(AssertionError, match="beside a reference"):
        openapi_proto._either_v3({"$ref": "#/x", "format": "y"})
