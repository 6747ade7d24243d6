"""Random messages of any type, for property tests."""

from __future__ import annotations

import random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from podyard.api import codec_json, facts

_TEXTS = ("", "a", "web", "Ünïcode ✓", 'quo"te\\', "line\nbreak", "10", "true")
_QUANTITIES = ("0", "500m", "1", "1Gi", "1536Mi", "3e3", "-2", "100n")
_JSON = (b'{"a":{"b":[1,null,"x"]}}', b"{}", b'{"f:metadata":{"f:labels":{}}}')


def fill(message: Any, rng: random.Random, depth: int = 5) -> Any:
    """Sets a random part of the fields, nested ones too."""
    name = message.DESCRIPTOR.full_name
    special = _SPECIAL.get(name)
    if special is not None:
        special(message, rng)
        return message
    if name in codec_json.STRING_LISTS:
        message.items.extend(rng.choice(_TEXTS) for _ in range(rng.randrange(3)))
        return message
    for fact in facts.fields().get(name, ()):
        if rng.random() < 0.6 or (
            depth == 0 and message.DESCRIPTOR.fields_by_number[fact.number].message_type
        ):
            continue
        _fill_field(message, message.DESCRIPTOR.fields_by_number[fact.number], fact, rng, depth)
    return message


def _fill_field(message: Any, field: Any, fact: Any, rng: random.Random, depth: int) -> None:
    if fact.label == "map":
        value_field = field.message_type.fields_by_name["value"]
        for key in rng.sample(["a", "b/c", "ü"], rng.randrange(1, 3)):
            if value_field.message_type is not None:
                fill(getattr(message, field.name)[key], rng, depth - 1)
            else:
                getattr(message, field.name)[key] = _scalar(value_field, rng)
    elif fact.label == "repeated":
        for _ in range(rng.randrange(1, 3)):
            if field.message_type is not None:
                fill(getattr(message, field.name).add(), rng, depth - 1)
            else:
                getattr(message, field.name).append(_scalar(field, rng))
    elif field.message_type is not None:
        getattr(message, field.name).SetInParent()
        fill(getattr(message, field.name), rng, depth - 1)
    else:
        setattr(message, field.name, _scalar(field, rng))


def _scalar(field: Any, rng: random.Random) -> Any:
    return {
        FieldDescriptor.TYPE_STRING: lambda: rng.choice(_TEXTS),
        FieldDescriptor.TYPE_BOOL: lambda: rng.random() < 0.5,
        FieldDescriptor.TYPE_INT32: lambda: rng.choice((0, 1, -1, 2**31 - 1, -(2**31))),
        FieldDescriptor.TYPE_INT64: lambda: rng.choice((0, 7, 2**63 - 1, -(2**63))),
        FieldDescriptor.TYPE_DOUBLE: lambda: rng.choice((0.0, 1.5, -3.0)),
        FieldDescriptor.TYPE_BYTES: lambda: rng.choice((b"", b"\x00\xff", b"data")),
    }[field.type]()


def _time(message: Any, rng: random.Random) -> None:
    message.seconds, message.nanos = rng.randrange(0, 4_000_000_000), 0


def _micro_time(message: Any, rng: random.Random) -> None:
    message.seconds, message.nanos = rng.randrange(0, 4_000_000_000), rng.randrange(1_000_000) * 1000


def _int_or_string(message: Any, rng: random.Random) -> None:
    message.type, message.intVal, message.strVal = rng.choice(((0, 80, ""), (1, 0, "http"), (0, 0, "")))


def _quantity(message: Any, rng: random.Random) -> None:
    message.string = rng.choice(_QUANTITIES)


def _duration(message: Any, rng: random.Random) -> None:
    message.duration = rng.choice((0, 1, 1500, 10**9, 90 * 10**9 + 5 * 10**8, -3600 * 10**9))


def _fields_v1(message: Any, rng: random.Random) -> None:
    message.Raw = rng.choice(_JSON)


def _raw_extension(message: Any, rng: random.Random) -> None:
    message.raw = rng.choice(_JSON)


_SPECIAL = {
    codec_json.TIME: _time,
    codec_json.MICRO_TIME: _micro_time,
    codec_json.INT_OR_STRING: _int_or_string,
    codec_json.QUANTITY: _quantity,
    codec_json.DURATION: _duration,
    codec_json.FIELDS_V1: _fields_v1,
    codec_json.RAW_EXTENSION: _raw_extension,
}
