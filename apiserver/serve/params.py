"""Query parameters, pure: from a URL's query to upstream's option messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor

from podyard.api import errors, times
from podyard.api.quoting import go_quote
from podyard.api.types import Message, Time

O = TypeVar("O", bound=Message)

_NUMBER = re.compile(r"[+-]?[0-9]+")
_BITS = {FieldDescriptor.CPPTYPE_INT32: 32, FieldDescriptor.CPPTYPE_INT64: 64}


def options_from(cls: type[O], query: Mapping[str, Any], getall: Any = None) -> O:
    """Builds an option message (ListOptions, CreateOptions, PodLogOptions, ...) from a query.

    Parameters that the message has no field for are ignored, as upstream does.

    Raises:
        BadRequest: a value does not parse.
    """
    options = cls()
    fields: Any = cls.DESCRIPTOR.fields
    for field in fields:
        if field.name not in query:
            continue
        text = query[field.name]
        if field.label == FieldDescriptor.LABEL_REPEATED:
            texts = getall(field.name) if getall else [text]
            if field.cpp_type in _BITS:
                # Source: Convert_Slice_string_To_Slice_int32: commas part numbers too.
                numbers = (part for given in texts for part in given.split(","))
                texts = [_integer(part, _BITS[field.cpp_type]) for part in numbers]
            getattr(options, field.name).extend(texts)
            continue
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            setattr(options, field.name, text)
        elif field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            setattr(options, field.name, _boolean(text))
        elif field.cpp_type in _BITS:
            setattr(options, field.name, _integer(text, _BITS[field.cpp_type]))
        elif field.message_type is not None and field.message_type.full_name == Time.DESCRIPTOR.full_name:
            _set_time(getattr(options, field.name), text)
    return options


def _set_time(target: Time, text: str) -> None:
    """Sets a time, which is the zero time for no text.

    Source: meta/v1 Time.UnmarshalQueryParameter, which takes what older clients wrote for none as well.
    """
    if text in ("", "null"):
        target.SetInParent()
        return
    try:
        target.seconds, target.nanos = times.parse(text)
    except times.TimeError as error:
        raise errors.BadRequest(str(error)) from None


def _boolean(text: str) -> bool:
    # Source: Convert_Slice_string_To_bool: only these two words are no.
    return text.lower() not in ("0", "false")


def _integer(text: str, bits: int) -> int:
    """A number by Go's rules, which refuse what Python's `int` would take.

    Source: Convert_Slice_string_To_int64.
    """
    quoted = go_quote(text)
    if not _NUMBER.fullmatch(text):
        raise errors.BadRequest(f"strconv.ParseInt: parsing {quoted}: invalid syntax")
    value = int(text)
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise errors.BadRequest(f"strconv.ParseInt: parsing {quoted}: value out of range")
    return value
