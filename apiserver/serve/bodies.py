"""Request bodies: read within a limit, decoded by media type, strict as `fieldValidation` asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aiohttp import web

from apiserver.serve.negotiate import JSON, PROTOBUF, YAML, body_media
from podyard.api import codec, errors
from podyard.api.types import Message
from podyard.base import clock

# Upstream: MaxRequestBodyBytes.
MAX_BODY_BYTES = 3 * 1024 * 1024
_READ_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded body; `warnings` go into Warning headers."""

    message: Message
    api_version: str
    kind: str
    warnings: tuple[str, ...] = ()


async def read_body(request: web.Request) -> bytes:
    """The whole body.

    Raises:
        RequestEntityTooLarge: over the limit.
        BadRequest: it was cut off.
        Timeout: it did not come.
    """
    if request.content_length is not None and request.content_length > MAX_BODY_BYTES:
        raise errors.RequestEntityTooLarge.of(f"limit is {MAX_BODY_BYTES}")
    chunks, size = [], 0
    try:
        async with clock.real_timeout(_READ_TIMEOUT_S):
            async for chunk in request.content.iter_chunked(65_536):
                size += len(chunk)
                if size > MAX_BODY_BYTES:
                    raise errors.RequestEntityTooLarge.of(f"limit is {MAX_BODY_BYTES}")
                chunks.append(chunk)
    except TimeoutError:
        raise errors.Timeout.of("the body of the request did not arrive") from None
    except (web.RequestPayloadError, ConnectionError):
        raise errors.BadRequest("unexpected EOF") from None
    return b"".join(chunks)


def decode_body(data: bytes, content_type: str, cls: type[Message], field_validation: str) -> Body:
    """The object in a body.

    Args:
        field_validation: what unknown and duplicate fields do.

    Raises:
        BadRequest: malformed, mistyped, or (Strict) unknown or duplicate fields.
    """
    media = body_media(content_type)
    if media == PROTOBUF:
        decoded: Any = codec.decode_protobuf(data, cls)
        return Body(decoded.message, decoded.api_version, decoded.kind)
    if media == YAML:
        decoded = codec.decode_yaml(data, cls, field_validation=field_validation)
    else:
        assert media == JSON
        decoded = codec.decode_json(data, cls, field_validation=field_validation)
    return Body(decoded.message, decoded.api_version, decoded.kind, tuple(decoded.warnings))
