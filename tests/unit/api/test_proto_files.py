"""The wire contract: .proto files and generated messages agree with the tables field by field."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from podyard.api import facts
from podyard.api.types import API_MODULES, SERVICE_MODULES

PROTO = Path(__file__).parents[3] / "proto"
TYPES = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_BYTES: "bytes",
}


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("proto_generate", PROTO / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up while it is executed.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        files: dict[str, str] = module.all_files() if hasattr(module, "all_files") else module.files()
    finally:
        del sys.modules[spec.name]
    return files


def test_files_are_what_the_generator_writes(generated: dict[str, str]) -> None:
    differing = [
        name for name, text in generated.items() if (PROTO / name).read_text(encoding="utf-8") != text
    ]
    assert differing == []


def type_of(field: Any) -> str:
    return field.message_type.full_name if field.message_type is not None else TYPES[field.type]


@pytest.mark.parametrize("package", sorted(API_MODULES))
def test_messages_equal_the_table(package: str) -> None:
    wanted = {
        (name, fact.number, fact.name, fact.label, fact.type)
        for name, listed in facts.fields().items()
        if name.rpartition(".")[0] == package
        for fact in listed
    }
    found = set()
    for descriptor in API_MODULES[package].DESCRIPTOR.message_types_by_name.values():
        for field in descriptor.fields:
            entry = field.message_type
            if entry is not None and entry.GetOptions().map_entry:
                kind = ",".join(type_of(entry.fields_by_name[part]) for part in ("key", "value"))
                label = "map"
            else:
                kind, label = type_of(field), "repeated" if field.is_repeated else "optional"
            found.add((descriptor.full_name, field.number, field.name, label, kind))
    assert found == wanted


def test_every_served_row_has_its_service() -> None:
    from podyard.api.resources import RESOURCES

    for row in RESOURCES:
        package, _, name = row.service.rpartition(".")
        methods = set(SERVICE_MODULES[package].DESCRIPTOR.services_by_name[name].methods_by_name)
        assert {"Get", "List", "Watch", "Create", "Update", "Patch", "Delete"} <= methods
