"""Query parameters, pure: from a URL's query to upstream's option messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor

from podyard.api import errors
from podyard.api.types import Message, meta_v1

O = TypeVar("O", bound=Message)

_TRUE = frozenset({"1", "t", "T", "true", "True", "TRUE", ""})
_FALSE = frozenset({"0", "f", "F", "false", "False", "FALSE"})
_INTEGERS = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)


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
            if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
                getattr(options, field.name).extend(getall(field.name) if getall else [text])
            continue
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            setattr(options, field.name, text)
        elif field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            setattr(options, field.name, _boolean(text))
        elif field.cpp_type in _INTEGERS and text != "":
            setattr(options, field.name, _integer(text))
    return options


def _boolean(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise errors.BadRequest(f'strconv.ParseBool: parsing "{text}": invalid syntax')


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise errors.BadRequest(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def check_dry_run(values: Any) -> None:
    """Only `All` is a dry run.

    Raises:
        Invalid: anything else was asked for.
    """
    for value in values:
        if value != "All":
            cause = errors.not_supported("dryRun", value, ["All"])
            raise errors.Invalid.of("CreateOptions", "", [cause], group="meta.k8s.io")


def wants_watch(options: meta_v1.ListOptions) -> bool:
    return options.watch
