"""Protobuf bytes without parsing: the storage envelope, revisions by appending, lists by joining.

Protobuf merges what is concatenated, so a stored object gets its resourceVersion by appending a
few bytes, and a List is the join of length-prefixed items. Every kind has `metadata` as field 1,
every List has `metadata` as field 1 and `items` as field 2 (a test checks it).

Counterpart: apimachinery `runtime/serializer/protobuf`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from google.protobuf.message import DecodeError, Message

from podyard.api.types import ListMeta, TypeMeta, Unknown

MAGIC = b"k8s\x00"
_TAG_1 = b"\x0a"
_TAG_2 = b"\x12"
_TAG_RESOURCE_VERSION = b"\x32"
# contentEncoding and contentType, empty: upstream writes them always.
_NO_CONTENT = b"\x1a\x00\x22\x00"


class EnvelopeError(ValueError):
    """Bytes that are no protobuf envelope."""


def varint(value: int) -> bytes:
    """A protobuf varint of a number >= 0."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@lru_cache(maxsize=1024)
def _envelope_start(api_version: str, kind: str) -> bytes:
    version, name = api_version.encode(), kind.encode()
    typemeta = _TAG_1 + varint(len(version)) + version + _TAG_2 + varint(len(name)) + name
    return MAGIC + _TAG_1 + varint(len(typemeta)) + typemeta + _TAG_2


def envelope(raw: bytes, api_version: str, kind: str) -> bytes:
    """Message bytes in the envelope that etcd and the protobuf media type hold."""
    return b"".join((_envelope_start(api_version, kind), varint(len(raw)), raw, _NO_CONTENT))


def encode_envelope(message: Message, api_version: str, kind: str) -> bytes:
    """A message in its envelope; map entries in key order, so equal objects are equal bytes."""
    return envelope(message.SerializeToString(deterministic=True), api_version, kind)


def decode_envelope(data: bytes) -> tuple[str, str, bytes]:
    """apiVersion, kind and message bytes of an envelope.

    Raises:
        EnvelopeError: the magic is missing or the envelope is broken; the message itself is not looked at.
    """
    if not data.startswith(MAGIC):
        raise EnvelopeError(
            "provided data does not appear to be a protobuf message, expected prefix 6b387300"
        )
    unknown = Unknown()
    try:
        unknown.ParseFromString(data[len(MAGIC) :])
    except DecodeError:
        raise EnvelopeError("unexpected EOF") from None
    meta: TypeMeta = unknown.typeMeta
    return meta.apiVersion, meta.kind, unknown.raw


def append_resource_version(raw: bytes, revision: int | str) -> bytes:
    """The same object with `metadata.resourceVersion` set to the revision."""
    digits = str(revision).encode()
    version = _TAG_RESOURCE_VERSION + varint(len(digits)) + digits
    return b"".join((raw, _TAG_1, varint(len(version)), version))


def delimited(number: int, data: bytes) -> bytes:
    """One length-delimited field (string, bytes or message), `number` below 16."""
    return b"".join((bytes((number << 3 | 2,)), varint(len(data)), data))


def join_list(
    list_message: type[Message],
    raws: Iterable[bytes],
    resource_version: str,
    continue_token: str = "",
    remaining: int | None = None,
) -> bytes:
    """Bytes of a List message from the bytes of its items.

    Args:
        list_message: the List's class; its `metadata` and `items` are fields 1 and 2, as in every List.
        raws: items, each with its resourceVersion already in it.
        remaining: items after this page; None = not said (selectors, or the last page).
    """
    assert list_message.DESCRIPTOR.fields_by_name["items"].number == 2
    meta = ListMeta(resourceVersion=resource_version)
    if continue_token:
        setattr(meta, "continue", continue_token)
    if remaining is not None:
        meta.remainingItemCount = remaining
    head = meta.SerializeToString()
    parts = [_TAG_1, varint(len(head)), head]
    for raw in raws:
        parts += (_TAG_2, varint(len(raw)), raw)
    return b"".join(parts)
