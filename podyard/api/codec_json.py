"""Messages to JSON values and back: one encoder and one decoder per message, made from descriptors.

Both are closures over a plan that is built once per message, from its descriptor and the field
table. The decoder is the fast walk: exact types only, and `Deviation` on anything unusual, upon
which `codec_check` finds out what exactly is wrong. Called by `codec`.

Counterpart: what Go's encoding/json makes of the struct tags.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from google.protobuf.descriptor import FieldDescriptor as FieldType
from google.protobuf.message import Message

from podyard.api import facts, quantity, times
from podyard.api.facts import FieldFact

META = "k8s.io.apimachinery.pkg.apis.meta.v1."
TIME = META + "Time"
MICRO_TIME = META + "MicroTime"
DURATION = META + "Duration"
FIELDS_V1 = META + "FieldsV1"
QUANTITY = "k8s.io.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "k8s.io.apimachinery.pkg.util.intstr.IntOrString"
RAW_EXTENSION = "k8s.io.apimachinery.pkg.runtime.RawExtension"
STRING_LISTS = frozenset(
    {
        META + "Verbs",
        "k8s.io.api.authentication.v1.ExtraValue",
        "k8s.io.api.authorization.v1.ExtraValue",
        "k8s.io.api.certificates.v1.ExtraValue",
    }
)
INT_LIMITS = {"int32": 2**31, "int64": 2**63}

# upb's descriptors are not the classes that the stubs know.
Descriptor = Any
FieldDescriptor = Any
Encode = Callable[[Any], Any]
Decode = Callable[[Any], Any]


class Deviation(Exception):
    """The JSON is not exactly what the message takes; the slow walk says why."""


# Lists whose items say of what kind they are, although that is always the same.
_NAMED_ITEMS = frozenset({"k8s.io.api.apps.v1.StatefulSetSpec.volumeClaimTemplates"})

# Encoding.

_encoders: dict[str, Encode] = {}


def encoder(descriptor: Descriptor) -> Encode:
    """The function from a message of this type to its JSON value."""
    name = descriptor.full_name
    made = _encoders.get(name)
    if made is None:
        made = _encoders[name] = _SPECIAL_ENCODERS.get(name) or _make_encoder(descriptor)
    return made


@dataclass(slots=True)
class _EncodePlan:
    """What an encoder does with each field of its message."""

    # Field -> key, conversion (None: as it is), whether a zero value is written when it is set.
    set_fields: dict[FieldDescriptor, tuple[str, Encode | None, bool]]
    # Keys that are always written, in order, with what stands there when the field is not set.
    seed: dict[str, Any]
    # Structs by value: an empty one is written as the encoding of an empty message.
    structs: list[tuple[str, Encode, Callable[[], Message]]]
    inlined: list[tuple[str, Encode]]


def _plan_encoding(descriptor: Descriptor) -> _EncodePlan:
    plan = _EncodePlan({}, {}, [], [])
    for fact in facts.fields().get(descriptor.full_name, ()):
        field = descriptor.fields_by_number[fact.number]
        if fact.inline:
            plan.inlined.append((field.name, encoder(field.message_type)))
            continue
        convert = _value_encoder(field, fact)
        struct = _is_struct(field, fact)
        plan.set_fields[field] = (fact.json_name, convert, fact.pointer or not fact.omit_empty)
        if fact.omit_zero or (fact.omit_empty and not struct):
            continue
        plan.seed[fact.json_name] = _zero(field, fact)
        if struct and convert is not None and field.message_type.full_name not in _NOT_STRUCTS:
            plan.structs.append((fact.json_name, convert, field.message_type._concrete_class))
    return plan


def _make_encoder(descriptor: Descriptor) -> Encode:
    """Walks only the fields that are set, over a copy of what is always written."""
    late: list[Encode] = []
    # Registered before the fields are looked at: messages may hold themselves.
    _encoders[descriptor.full_name] = lambda value: late[0](value)
    plan = _plan_encoding(descriptor)
    set_fields, seed, structs, inlined = plan.set_fields, plan.seed, plan.structs, plan.inlined

    def encode(message: Message) -> dict[str, Any]:
        out = seed.copy()
        for field, value in message.ListFields():
            entry = set_fields.get(field)
            if entry is None:
                continue
            key, convert, keep_zero = entry
            if convert is not None:
                value = convert(value)
                if value is not None or key in seed:
                    out[key] = value
            elif value or keep_zero:
                out[key] = value
        for key, convert_struct, make in structs:
            if out[key] is None:
                out[key] = convert_struct(make())
        for name, convert_inlined in inlined:
            out.update(convert_inlined(getattr(message, name)))
        return out

    late.append(encode)
    return encode


def _is_struct(field: FieldDescriptor, fact: FieldFact) -> bool:
    """A struct by value: Go's omitempty never drops it."""
    return fact.label == "optional" and field.message_type is not None and not fact.pointer


def _zero(field: FieldDescriptor, fact: FieldFact) -> Any:
    """What is written for a field that is not set and must be written."""
    if fact.pointer or fact.label == "map":
        return None
    if fact.label == "repeated":
        # Upstream's lists of objects are never null; other lists without omitempty are.
        is_list = facts.messages()[field.containing_type.full_name].is_list
        return [] if is_list and fact.name == "items" else None
    if field.message_type is not None:
        return {QUANTITY: "0", INT_OR_STRING: 0}.get(field.message_type.full_name)
    return {"string": "", "bool": False, "bytes": None, "double": 0}.get(fact.type, 0)


def _value_encoder(field: FieldDescriptor, fact: FieldFact) -> Encode | None:
    """The conversion of a field's value; None when the value can be used as it is."""
    if fact.label == "map":
        return _map_encoder(field)
    if fact.label == "repeated":
        if field.message_type is None:
            return list if fact.type != "bytes" else lambda values: [_bytes_text(v) for v in values]
        convert = encoder(field.message_type)
        if field.full_name in _NAMED_ITEMS:
            api_version, _, kind = facts.messages()[field.message_type.full_name].gvk.rpartition("/")
            head = {"kind": kind, "apiVersion": api_version}
            return lambda values: [{**head, **convert(value)} for value in values]
        return lambda values: [convert(value) for value in values]
    if field.message_type is not None:
        return encoder(field.message_type)
    if fact.type == "bytes":
        return _bytes_text
    return None


def _map_encoder(field: FieldDescriptor) -> Encode:
    value_field = field.message_type.fields_by_name["value"]
    if value_field.message_type is not None:
        convert = encoder(value_field.message_type)
        return lambda values: {key: convert(values[key]) for key in sorted(values)}
    if value_field.type == FieldType.TYPE_BYTES:
        return lambda values: {key: _bytes_text(values[key]) for key in sorted(values)}
    return lambda values: {key: values[key] for key in sorted(values)}


def _bytes_text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _time_text(message: Any) -> str | None:
    if message.HasField("seconds") or message.HasField("nanos"):
        return times.text(message.seconds)
    return None


def _micro_time_text(message: Any) -> str | None:
    if message.HasField("seconds") or message.HasField("nanos"):
        return times.micro_text(message.seconds, message.nanos)
    return None


def _quantity_text(message: Any) -> str:
    text = message.string
    if not text:
        return "0"
    try:
        return quantity.canonical(text)
    except quantity.QuantityError:
        # Stored by someone who checked less; showing it beats failing every list.
        return str(text)


def _int_or_string(message: Any) -> int | str:
    value: int | str = message.strVal if message.type == 1 else message.intVal
    return value


def _embedded(raw: bytes) -> Any:
    if not raw:
        return None
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None


# Messages whose zero is a single value (`_zero`).
_NOT_STRUCTS = frozenset({TIME, MICRO_TIME, RAW_EXTENSION, QUANTITY, INT_OR_STRING})
_SPECIAL_ENCODERS: dict[str, Encode] = {
    TIME: _time_text,
    MICRO_TIME: _micro_time_text,
    QUANTITY: _quantity_text,
    INT_OR_STRING: _int_or_string,
    DURATION: lambda message: times.duration_text(message.duration),
    FIELDS_V1: lambda message: _embedded(message.Raw),
    RAW_EXTENSION: lambda message: _embedded(message.raw),
    **{name: lambda message: list(message.items) for name in STRING_LISTS},
}


# Decoding: the fast walk.

_decoders: dict[str, Decode] = {}


def decoder(descriptor: Descriptor) -> Decode:
    """The function from a JSON value to what the message's constructor takes; raises Deviation."""
    name = descriptor.full_name
    made = _decoders.get(name)
    if made is None:
        made = _decoders[name] = SPECIAL_DECODERS.get(name) or _make_decoder(descriptor)
    return made


_DecodePlan = dict[str, tuple[tuple[str, ...], str, type | None, Decode | None]]


def _plan_decoding(descriptor: Descriptor) -> _DecodePlan:
    """JSON key -> path of inlined messages, field name, plain type to check, else the conversion."""
    plan: _DecodePlan = {}
    for path, field, fact in json_fields(descriptor):
        plain = _PLAIN_TYPES.get(fact.type) if fact.label == "optional" else None
        plan[fact.json_name] = (path, field.name, plain, None if plain else value_decoder(field, fact))
    if facts.messages()[descriptor.full_name].has_typemeta:
        for key in ("apiVersion", "kind"):
            plan[key] = ((), "", str, None)
    return plan


def _make_decoder(descriptor: Descriptor) -> Decode:
    late: list[Decode] = []
    _decoders[descriptor.full_name] = lambda value: late[0](value)
    plan = _plan_decoding(descriptor)

    def decode(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise Deviation
        out: dict[str, Any] = {}
        for key, item in value.items():
            entry = plan.get(key)
            if entry is None:
                raise Deviation
            if item is None:
                continue
            path, name, plain, convert = entry
            if convert is not None:
                item = convert(item)
            elif type(item) is not plain:
                raise Deviation
            if path:
                nested(out, path)[name] = item
            elif name:
                out[name] = item
        return out

    late.append(decode)
    return decode


def nested(out: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """The nested mapping of an inlined message."""
    for step in path:
        out = out.setdefault(step, {})
    return out


_PLAIN_TYPES: dict[str, type] = {"string": str, "bool": bool}


def json_fields(
    descriptor: Descriptor, path: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], FieldDescriptor, FieldFact]]:
    """Fields by JSON key, those of inlined messages with the path of proto fields that leads there."""
    found = []
    for fact in facts.fields().get(descriptor.full_name, ()):
        field = descriptor.fields_by_number[fact.number]
        if fact.inline:
            found += json_fields(field.message_type, (*path, field.name))
        elif fact.json_name and fact.json_name != "-":
            found.append((path, field, fact))
    return found


def value_decoder(field: FieldDescriptor, fact: FieldFact) -> Decode:
    """The checked conversion of one field's JSON value."""
    if fact.label == "map":
        return _map_decoder(field)
    single = _single_decoder(field)
    if fact.label != "repeated":
        return single

    def decode_list(value: Any) -> list[Any]:
        if type(value) is not list:
            raise Deviation
        return [single(item) for item in value]

    return decode_list


def _single_decoder(field: FieldDescriptor) -> Decode:
    if field.message_type is not None:
        return decoder(field.message_type)
    return SCALAR_DECODERS[field.type]


def _map_decoder(field: FieldDescriptor) -> Decode:
    single = _single_decoder(field.message_type.fields_by_name["value"])

    def decode_map(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise Deviation
        return {key: single(item) for key, item in value.items()}

    return decode_map


def _string(value: Any) -> str:
    if type(value) is not str:
        raise Deviation
    return value


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise Deviation
    return value


def _int32(value: Any) -> int:
    if type(value) is not int or not -(2**31) <= value < 2**31:
        raise Deviation
    return value


def _int64(value: Any) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise Deviation
    return value


def _double(value: Any) -> float:
    if type(value) is not float and type(value) is not int:
        raise Deviation
    return float(value)


def _bytes(value: Any) -> bytes:
    if type(value) is not str:
        raise Deviation
    try:
        return bytes_of(value)
    except (binascii.Error, ValueError):
        raise Deviation from None


def bytes_of(text: str) -> bytes:
    """Standard base64; line breaks are skipped, as Go's decoder does. Raises binascii.Error."""
    return base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)


def _time(value: Any) -> dict[str, int]:
    if type(value) is not str:
        raise Deviation
    try:
        return {"seconds": times.parse(value)[0], "nanos": 0}
    except times.TimeError:
        raise Deviation from None


def _micro_time(value: Any) -> dict[str, int]:
    if type(value) is not str:
        raise Deviation
    try:
        seconds, nanos = times.parse_micro(value)
    except times.TimeError:
        raise Deviation from None
    return {"seconds": seconds, "nanos": nanos}


def _duration(value: Any) -> dict[str, int]:
    if type(value) is not str:
        raise Deviation
    try:
        return {"duration": times.parse_duration(value)}
    except times.TimeError:
        raise Deviation from None


def _quantity(value: Any) -> dict[str, str]:
    if type(value) is not str:
        # Numbers need their literal, which is gone here: the slow walk decides.
        if type(value) is not int:
            raise Deviation
        value = str(value)
    try:
        return {"string": quantity.canonical(value.strip())}
    except quantity.QuantityError:
        raise Deviation from None


def _int_or_string_of(value: Any) -> dict[str, Any]:
    if type(value) is str:
        return {"type": 1, "intVal": 0, "strVal": value}
    return {"type": 0, "intVal": _int32(value), "strVal": ""}


def _string_list(value: Any) -> dict[str, list[str]]:
    if type(value) is not list or not all(type(item) is str for item in value):
        raise Deviation
    return {"items": value}


SCALAR_DECODERS: dict[int, Decode] = {
    FieldType.TYPE_STRING: _string,
    FieldType.TYPE_BOOL: _boolean,
    FieldType.TYPE_INT32: _int32,
    FieldType.TYPE_INT64: _int64,
    FieldType.TYPE_DOUBLE: _double,
    FieldType.TYPE_BYTES: _bytes,
}
SPECIAL_DECODERS: dict[str, Decode] = {
    TIME: _time,
    MICRO_TIME: _micro_time,
    QUANTITY: _quantity,
    INT_OR_STRING: _int_or_string_of,
    DURATION: _duration,
    FIELDS_V1: lambda value: {"Raw": orjson.dumps(value)},
    RAW_EXTENSION: lambda value: {"raw": orjson.dumps(value)},
    **dict.fromkeys(STRING_LISTS, _string_list),
}
