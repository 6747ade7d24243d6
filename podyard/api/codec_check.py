"""The slow walk over JSON: names every unknown, duplicate and mistyped field with its path.

Runs only after the fast walk met something unusual or a duplicate key was seen. Texts are those
of upstream's decoder, which gives the first type error only; here all are collected, and the
caller shows the first as the message and all as causes.

Counterpart: sigs.k8s.io/json (strict errors), Go's encoding/json (type errors).
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
from google.protobuf.descriptor import FieldDescriptor as FieldType

from podyard.api import codec_json, facts, quantity, times
from podyard.api.codec_json import Descriptor, FieldDescriptor
from podyard.api.facts import FieldFact

# Upstream stops collecting strict errors here.
MAX_STRICT_ERRORS = 100
_SKIP = object()
_GO_BUILTIN = frozenset(
    {"string", "bool", "int", "int32", "int64", "uint8", "byte", "float64", "interface{}"}
)
# What null stands for in lists and maps.
_ZEROS = {FieldType.TYPE_STRING: "", FieldType.TYPE_BYTES: b"", FieldType.TYPE_BOOL: False}
_GO_INTEGERS = {FieldType.TYPE_INT32: "int32", FieldType.TYPE_INT64: "int64"}


class Mistyped(NamedTuple):
    """A value that does not fit its field."""

    path: str
    text: str


@dataclass(slots=True)
class Report:
    """What the slow walk found."""

    unusual: list[str] = field(default_factory=list)  # `unknown field "spec.foo"`, in document order
    mistyped: list[Mistyped] = field(default_factory=list)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with every key as often as it was written."""


class _Literal(str):
    """A JSON number that is no integer, as written."""


def parse(data: bytes | str) -> Any:
    """JSON to values that keep duplicate keys and number literals; the text must be valid JSON."""
    return json.loads(data, object_pairs_hook=_Pairs, parse_float=_Literal)


def has_duplicate_keys(data: bytes | str) -> bool:
    """Whether any object in valid JSON has a key twice."""
    found = False

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal found
        made = dict(pairs)
        if len(made) != len(pairs):
            found = True
        return made

    json.loads(data, object_pairs_hook=look)
    return found


def check(value: Any, descriptor: Descriptor) -> tuple[dict[str, Any], Report]:
    """Walks a JSON value (from `parse`, or plain dicts).

    Returns:
        What the message's constructor takes, without the fields that did not fit, and the report.
    """
    walk = _Walk()
    out = walk.message(value, descriptor, _Place())
    return (out if isinstance(out, dict) else {}), walk.report


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the walk is: the path for people, and what Go's type errors name."""

    path: str = ""
    struct: str = ""
    stack: str = ""
    go_type: str = ""

    def key(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def at_field(self, name: str, struct: str, go_type: str) -> _Place:
        return _Place(self.key(name), struct, f"{self.stack}.{name}" if self.stack else name, go_type)

    def at_index(self, index: int) -> _Place:
        return _Place(f"{self.path}[{index}]", self.struct, self.stack, self.go_type.removeprefix("[]"))

    def at_key(self, name: str) -> _Place:
        return _Place(self.key(name), self.struct, self.stack, re.sub(r"^map\[[^]]*\]", "", self.go_type))


class _Walk:
    def __init__(self) -> None:
        self.report = Report()

    def message(self, value: Any, descriptor: Descriptor, place: _Place) -> Any:
        """The constructor's mapping of one message, or _SKIP."""
        special = codec_json.SPECIAL_DECODERS.get(descriptor.full_name)
        if special is not None:
            return self.special(value, descriptor.full_name, special, place)
        if not isinstance(value, dict | _Pairs):
            package = descriptor.file.package.rsplit(".", 1)[-1]
            return self.mistyped(value, place, place.go_type or f"{package}.{descriptor.name}")
        known = {fact.json_name: entry for entry in codec_json.json_fields(descriptor) for fact in [entry[2]]}
        has_typemeta = facts.messages()[descriptor.full_name].has_typemeta
        out: dict[str, Any] = {}
        seen: set[str] = set()
        for key, item in value.items() if isinstance(value, dict) else value:
            if key in seen:
                self.unusual(f'duplicate field "{place.key(key)}"')
            seen.add(key)
            entry = known.get(key)
            if entry is None:
                if has_typemeta and key in ("apiVersion", "kind"):
                    if item is not None and type(item) is not str:
                        self.mistyped(item, place.at_field(key, descriptor.name, "string"), "string")
                else:
                    self.unusual(f'unknown field "{place.key(key)}"')
                continue
            if item is None:
                continue
            path, proto_field, fact = entry
            made = self.field(
                item, proto_field, fact, place.at_field(key, descriptor.name, _go_type(fact, proto_field))
            )
            if made is not _SKIP:
                codec_json.nested(out, path)[proto_field.name] = made
        return out

    def field(self, value: Any, proto_field: FieldDescriptor, fact: FieldFact, place: _Place) -> Any:
        if fact.label == "map":
            return self.map(value, proto_field.message_type.fields_by_name["value"], place)
        if fact.label == "repeated":
            if not isinstance(value, list) or isinstance(value, _Pairs):
                return self.mistyped(value, place, place.go_type)
            items = (self.single(item, proto_field, place.at_index(i)) for i, item in enumerate(value))
            return [item for item in items if item is not _SKIP]
        return self.single(value, proto_field, place)

    def map(self, value: Any, value_field: FieldDescriptor, place: _Place) -> Any:
        if not isinstance(value, dict | _Pairs):
            return self.mistyped(value, place, place.go_type)
        out: dict[str, Any] = {}
        seen: set[str] = set()
        for key, item in value.items() if isinstance(value, dict) else value:
            if key in seen:
                self.unusual(f'duplicate field "{place.key(key)}"')
            seen.add(key)
            made = self.single(item, value_field, place.at_key(key))
            if made is not _SKIP:
                out[key] = made
        return out

    def single(self, value: Any, proto_field: FieldDescriptor, place: _Place) -> Any:
        """One value that is neither list nor map; null is the zero value, as in Go."""
        if proto_field.message_type is not None:
            if value is None:
                return {}
            return self.message(value, proto_field.message_type, place)
        if value is None:
            return _ZEROS.get(proto_field.type, 0)
        go_type = place.go_type or "string"
        if proto_field.type in _GO_INTEGERS:
            limit = codec_json.INT_LIMITS[_GO_INTEGERS[proto_field.type]]
            if isinstance(value, _Literal) or (type(value) is int and not -limit <= value < limit):
                return self.wrong(place, f"number {value}", go_type)
        if proto_field.type == FieldType.TYPE_DOUBLE and isinstance(value, _Literal):
            return float(value)
        if isinstance(value, _Literal):
            return self.mistyped(value, place, go_type)
        if proto_field.type == FieldType.TYPE_BYTES and type(value) is str:
            return self.bytes(value, place)
        try:
            return codec_json.SCALAR_DECODERS[proto_field.type](value)
        except codec_json.Deviation:
            return self.mistyped(value, place, go_type)

    def bytes(self, value: str, place: _Place) -> Any:
        try:
            return codec_json.bytes_of(value)
        except (binascii.Error, ValueError):
            self.report.mistyped.append(
                Mistyped(place.path, f"illegal base64 data at input byte {_base64_fault(value)}")
            )
            return _SKIP

    def special(self, value: Any, name: str, decode: codec_json.Decode, place: _Place) -> Any:
        """Types with a JSON form of their own."""
        if name in (codec_json.FIELDS_V1, codec_json.RAW_EXTENSION):
            return decode(_plain(value))
        if name == codec_json.QUANTITY and type(value) in (int, _Literal):
            value = str(value)
        try:
            return decode(value)
        except codec_json.Deviation:
            pass
        if name in _GRAMMAR and type(value) is str:
            try:
                _GRAMMAR[name](value)
            except ValueError as error:
                self.report.mistyped.append(Mistyped(place.path, str(error)))
                return _SKIP
        if name == codec_json.QUANTITY:
            self.report.mistyped.append(Mistyped(place.path, quantity.WRONG_FORMAT))
            return _SKIP
        if name == codec_json.INT_OR_STRING:
            if (isinstance(value, int) and type(value) is not bool) or isinstance(value, _Literal):
                return self.wrong(place, f"number {value}", "int32")
            return self.mistyped(value, place, "int32")
        if name in codec_json.STRING_LISTS:
            return self.mistyped(value, place, place.go_type)
        return self.mistyped(value, place, "string")

    def unusual(self, text: str) -> None:
        if len(self.report.unusual) < MAX_STRICT_ERRORS and text not in self.report.unusual:
            self.report.unusual.append(text)

    def mistyped(self, value: Any, place: _Place, go_type: str) -> Any:
        return self.wrong(place, json_kind(value), go_type)

    def wrong(self, place: _Place, what: str, go_type: str) -> Any:
        if place.stack:
            where = f"Go struct field {place.struct}.{place.stack}"
        else:
            where = "Go value"
        text = f"json: cannot unmarshal {what} into {where} of type {go_type}"
        self.report.mistyped.append(Mistyped(place.path, text))
        return _SKIP


_GRAMMAR: dict[str, Callable[[str], Any]] = {
    codec_json.TIME: times.parse,
    codec_json.MICRO_TIME: times.parse_micro,
    codec_json.DURATION: times.parse_duration,
    codec_json.QUANTITY: lambda value: quantity.parse(value.strip()),
}


def json_kind(value: Any) -> str:
    if isinstance(value, _Literal):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, dict | _Pairs):
        return "object"
    return "array"


def _plain(value: Any) -> Any:
    """Values of `parse` as ordinary dicts, lists and numbers."""
    if isinstance(value, _Pairs):
        return {key: _plain(item) for key, item in value}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return orjson.loads(value) if isinstance(value, _Literal) else value


def _go_type(fact: FieldFact, proto_field: FieldDescriptor) -> str:
    """A field's type as Go's errors print it: `[]v1.Container`, `int32`, `v1.RestartPolicy`."""
    package = proto_field.containing_type.file.package.rsplit(".", 1)[-1]
    return _qualified(fact.go_type or fact.type, package)


def _qualified(go_type: str, package: str) -> str:
    go_type = go_type.lstrip("*")
    if go_type.startswith("[]"):
        return "[]" + _qualified(go_type[2:], package)
    match = re.fullmatch(r"map\[([^]]*)\](.*)", go_type)
    if match:
        return f"map[{_qualified(match[1], package)}]{_qualified(match[2], package)}"
    if go_type in _GO_BUILTIN:
        return go_type
    alias, dot, name = go_type.rpartition(".")
    if not dot:
        return f"{package}.{go_type}"
    # Import aliases such as metav1 and corev1 are packages called v1.
    version = re.search(r"v\d+$", alias)
    return f"{version[0] if version else alias}.{name}"


def _base64_fault(value: str) -> int:
    """The byte at which Go's decoder stops."""
    alphabet = re.match(r"[A-Za-z0-9+/]*", value)
    good = alphabet.end() if alphabet else 0
    if good < len(value) and value[good] != "=":
        return good
    padding = len(value) - good
    if good % 4 == 1:
        return good
    if padding == 0 or good % 4 == 0 or good % 4 + padding < 4:
        return len(value)
    return good + 4 - good % 4
