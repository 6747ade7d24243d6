"""The tables about messages and fields, as records.

`podyard/api/tables/*.tsv` hold facts of Kubernetes' wire contract that descriptors do not:
JSON names, which zero values are left out, how lists merge. The codec, the patch code and
OpenAPI are driven by them. Read once, when first needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

TABLES = Path(__file__).parent / "tables"


class FieldFact(NamedTuple):
    """One field of one message, as it looks in JSON and in Go."""

    number: int
    name: str
    label: str  # optional, repeated or map
    type: str  # scalar name, full message name, or "key,value" of a map
    json_name: str
    omit_empty: bool
    omit_zero: bool
    pointer: bool
    inline: bool
    patch_strategy: tuple[str, ...]
    patch_merge_key: str
    list_type: str
    list_map_keys: tuple[str, ...]
    required: bool
    default: str
    enum_values: tuple[str, ...]
    enum_closed: bool
    map_type: str
    struct_type: str
    go_type: str


class MessageFact(NamedTuple):
    """One message."""

    full_name: str
    has_typemeta: bool
    gvk: str
    is_list: bool
    openapi_name: str
    struct_type: str


def rows(table: str) -> Iterator[dict[str, str]]:
    """The rows of one table by column name."""
    with (TABLES / f"{table}.tsv").open(encoding="utf-8") as file:
        header = next(file).rstrip("\n").split("\t")
        for line in file:
            yield dict(zip(header, line.rstrip("\n").split("\t"), strict=True))


@cache
def fields() -> dict[str, tuple[FieldFact, ...]]:
    """Fields of every message by its full name, in field number order."""
    found: dict[str, list[FieldFact]] = {}
    for row in rows("proto_fields"):
        found.setdefault(f"{row['package']}.{row['message']}", []).append(_field(row))
    return {name: tuple(sorted(facts)) for name, facts in found.items()}


@cache
def messages() -> dict[str, MessageFact]:
    """Every message by its full name."""
    return {
        fact.full_name: fact
        for fact in (
            MessageFact(
                full_name=f"{row['package']}.{row['message']}",
                has_typemeta=row["has_typemeta"] == "1",
                gvk=row["gvk"],
                is_list=row["is_list"] == "1",
                openapi_name=row["openapi_name"],
                struct_type=row["struct_type"],
            )
            for row in rows("messages")
        )
    }


def _field(row: dict[str, str]) -> FieldFact:
    return FieldFact(
        number=int(row["field_number"]),
        name=row["field_name"],
        label=row["label"],
        type=row["type"],
        json_name=row["json_name"],
        omit_empty=row["omitempty"] in ("1", "3"),
        omit_zero=row["omitempty"] in ("2", "3"),
        pointer=row["go_pointer"] == "1",
        inline=row["inline"] == "1",
        patch_strategy=_split(row["patch_strategy"], ","),
        patch_merge_key=row["patch_merge_key"],
        list_type=row["list_type"],
        list_map_keys=_split(row["list_map_keys"], "|"),
        required=row["required"] == "1",
        default=row["default"],
        enum_values=_split(row["enum_values"], "|"),
        enum_closed=row["enum_closed"] == "1",
        map_type=row["map_type"],
        struct_type=row["struct_type"],
        go_type=row["go_type"],
    )


def _split(cell: str, separator: str) -> tuple[str, ...]:
    return tuple(cell.split(separator)) if cell else ()
