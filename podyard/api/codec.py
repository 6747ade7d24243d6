"""What objects look like outside: JSON and YAML with upstream's checks, protobuf envelopes.

`encode_json`, `decode_json`, `decode_yaml` and `to_dict` here; envelopes and joins without parsing
come from `codec_proto`. Decoding tries the fast walk first and pays for names, paths and texts only
when something is wrong. `google.protobuf.json_format` is never used.

Counterpart: apimachinery `runtime/serializer/json`, apiserver `endpoints/handlers`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic

import orjson
from google.protobuf.message import DecodeError

from podyard.api import codec_check, codec_json, json_syntax, yaml_json
from podyard.api.codec_json import Deviation
from podyard.api.codec_proto import (
    EnvelopeError,
    append_resource_version,
    decode_envelope,
    delimited,
    encode_envelope,
    envelope,
    join_list,
)
from podyard.api.errors import CAUSE_TYPE_INVALID, BadRequest
from podyard.api.types import M, Message, StatusCause

__all__ = [
    "IGNORE",
    "STRICT",
    "WARN",
    "Decoded",
    "EnvelopeError",
    "append_resource_version",
    "decode_envelope",
    "decode_json",
    "decode_protobuf",
    "decode_value",
    "decode_yaml",
    "delimited",
    "encode_envelope",
    "encode_json",
    "encode_value",
    "envelope",
    "from_dict",
    "join_list",
    "join_list_json",
    "same",
    "to_dict",
]

# Values of `fieldValidation`.
IGNORE = "Ignore"
WARN = "Warn"
STRICT = "Strict"

_SUMMARY_BYTES = 30
_NO_KIND = "couldn't get version/kind; json parse error: "
_META_TYPE = (
    r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
)


@dataclass(frozen=True, slots=True)
class Decoded(Generic[M]):
    """A decoded body.

    `api_version` and `kind` are what the body says, empty where it does not; `warnings` are the
    unknown and duplicate fields that were dropped, as upstream words them (one warning each).
    """

    message: M
    api_version: str
    kind: str
    warnings: tuple[str, ...] = ()


def to_dict(message: Message) -> dict[str, Any]:
    """A message as its JSON value (fresh containers), without apiVersion and kind."""
    value: dict[str, Any] = codec_json.encoder(message.DESCRIPTOR)(message)
    return value


def same(left: Message, right: Message) -> bool:
    """Whether two messages mean the same object.

    Go's encoder writes zero values that others leave out, so equal objects need not be equal messages.
    """
    return left == right or to_dict(left) == to_dict(right)


def encode_value(message: Message, api_version: str, kind: str) -> dict[str, Any]:
    """A message as its JSON value with kind and apiVersion first."""
    return {"kind": kind, "apiVersion": api_version, **to_dict(message)}


def encode_json(message: Message, api_version: str, kind: str) -> bytes:
    """A message as JSON; `kind` and `apiVersion` are left out when empty."""
    value = to_dict(message)
    if not kind and not api_version:
        return orjson.dumps(value)
    start = _json_start(api_version, kind)
    if not value:
        return start[:-1] + b"}"  # nothing follows the comma
    return b"".join((start, orjson.dumps(value)[1:]))


def join_list_json(
    items: Iterable[bytes],
    api_version: str,
    kind: str,
    resource_version: str,
    continue_token: str = "",
    remaining: int | None = None,
    *,
    item_kind: str = "",
) -> bytes:
    """JSON of a List from the JSON of its items.

    Args:
        items: JSON objects as `encode_json` made them.
        kind: the List's kind, `PodList`.
        item_kind: the kind that the items carry; upstream's list items do not name it, so it is cut off.
    """
    metadata: dict[str, Any] = {"resourceVersion": resource_version}
    if continue_token:
        metadata["continue"] = continue_token
    if remaining is not None:
        metadata["remainingItemCount"] = remaining
    start = _json_start(api_version, item_kind) if item_kind else b""
    cut = len(start)
    bodies = (b"{" + item[cut:] if cut and item.startswith(start) else item for item in items)
    head = _json_start(api_version, kind) + b'"metadata":' + orjson.dumps(metadata) + b',"items":['
    return b"".join((head, b",".join(bodies), b"]}"))


@lru_cache(maxsize=1024)
def _json_start(api_version: str, kind: str) -> bytes:
    return orjson.dumps({"kind": kind, "apiVersion": api_version})[:-1] + b","


def decode_json(
    data: bytes,
    cls: type[M],
    *,
    field_validation: str = IGNORE,
    api_version: str = "",
    kind: str = "",
) -> Decoded[M]:
    """Reads one object from JSON.

    Args:
        data: the body.
        cls: the message to make.
        field_validation: Ignore, Warn or Strict; duplicates are looked for only under the last two.
        api_version, kind: what the endpoint serves, used in texts where the body does not say.

    Raises:
        BadRequest: broken JSON, a value of the wrong type (all of them are in `causes`), or under
            Strict an unknown or duplicate field; texts are upstream's.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        why = json_syntax.explain(data) or str(error)
        raise _unrecognized(data, cls, kind, f"{_NO_KIND}{why}") from None
    duplicates = field_validation != IGNORE and codec_check.has_duplicate_keys(data)
    return _decode(value, cls, field_validation, api_version, kind, data=data, slow=duplicates)


def decode_yaml(
    data: bytes,
    cls: type[M],
    *,
    field_validation: str = IGNORE,
    api_version: str = "",
    kind: str = "",
) -> Decoded[M]:
    """Reads one object from YAML, by YAML 1.1's rules as upstream; otherwise as `decode_json`."""
    try:
        parsed = yaml_json.parse(data)
    except yaml_json.YamlError as error:
        raise _unrecognized(data, cls, kind, str(error)) from None
    problems = (parsed.duplicates,) if parsed.duplicates and field_validation != IGNORE else ()
    return _decode(parsed.value, cls, field_validation, api_version, kind, data=data, before=problems)


def decode_protobuf(data: bytes, cls: type[M], *, kind: str = "") -> Decoded[M]:
    """Reads one object from the protobuf media type (magic and envelope).

    Raises:
        BadRequest: no envelope, or bytes that are no such message.
    """
    try:
        api_version, body_kind, raw = decode_envelope(data)
    except EnvelopeError as error:
        raise _unrecognized(data, cls, kind, str(error)) from None
    try:
        return Decoded(cls.FromString(raw), api_version, body_kind)
    except DecodeError:
        version = api_version.rsplit("/", 1)[-1]
        name = kind or cls.DESCRIPTOR.name
        text = f'{body_kind or name} in version "{version}" cannot be handled as a {name}: unexpected EOF'
        raise BadRequest(text) from None


def decode_value(
    value: Any, cls: type[M], *, field_validation: str = IGNORE, api_version: str = "", kind: str = ""
) -> Decoded[M]:
    """As `decode_json`, from a JSON value that is already parsed (the result of a patch)."""
    return _decode(value, cls, field_validation, api_version, kind, data=b"")


def from_dict(value: dict[str, Any], cls: type[M]) -> M:
    """A message from a JSON value; unknown fields are dropped.

    Raises:
        BadRequest: a value has the wrong type.
    """
    return decode_value(value, cls).message


def _decode(
    value: Any,
    cls: type[M],
    field_validation: str,
    api_version: str,
    kind: str,
    *,
    data: bytes,
    slow: bool = False,
    before: tuple[str, ...] = (),
) -> Decoded[M]:
    body_version, body_kind = _kind_of(value, cls, kind, data)
    descriptor: Any = cls.DESCRIPTOR
    problems = before
    version = (body_version or api_version or descriptor.file.package.replace(".", "/")).rpartition("/")[2]
    name = kind or descriptor.name
    unfit = f'{body_kind or name} in version "{version}" cannot be handled as a {name}: '
    try:
        if slow:
            raise Deviation
        fields = codec_json.decoder(descriptor)({} if value is None else value)
    except Deviation:
        walked = codec_check.parse(data) if data and not before and _is_json(data) else value
        fields, report = codec_check.check(walked, descriptor)
        if report.mistyped:
            causes = [
                StatusCause(reason=CAUSE_TYPE_INVALID, message=wrong.text, field=wrong.path)
                for wrong in report.mistyped
            ]
            raise BadRequest(f"{unfit}{report.mistyped[0].text}", causes=causes) from None
        problems = (*before, *report.unusual)
    if problems and field_validation == STRICT:
        raise BadRequest(f"{unfit}strict decoding error: {', '.join(problems)}")
    return Decoded(cls(**fields), body_version, body_kind, () if field_validation == IGNORE else problems)


def _kind_of(value: Any, cls: type[Message], kind: str, data: bytes) -> tuple[str, str]:
    """apiVersion and kind as the body has them."""
    if value is None:
        return "", ""
    if type(value) is not dict:
        why = f"json: cannot unmarshal {codec_check.json_kind(value)} into Go value of type {_META_TYPE}"
        raise _unrecognized(data, cls, kind, f"{_NO_KIND}{why}")
    found = []
    for key in ("apiVersion", "kind"):
        part = value.get(key)
        if part is not None and type(part) is not str:
            what = codec_check.json_kind(part)
            why = f"json: cannot unmarshal {what} into Go struct field .{key} of type string"
            raise _unrecognized(data, cls, kind, f"{_NO_KIND}{why}")
        found.append(part or "")
    return found[0], found[1]


def _is_json(data: bytes) -> bool:
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return True


def _unrecognized(data: bytes, cls: type[Message], kind: str, why: str) -> BadRequest:
    name = kind or cls.DESCRIPTOR.name
    return BadRequest(
        f"the object provided is unrecognized (must be of type {name}): {why} ({_summary(data)})"
    )


def _summary(data: bytes) -> str:
    """The start of a body for an error text."""
    if not data:
        return "<empty>"
    cut = data[:_SUMMARY_BYTES]
    shown = cut.decode("utf-8", "replace") if data.startswith(b"{") else cut.hex()
    return f"{shown} ..." if len(data) > _SUMMARY_BYTES else shown
