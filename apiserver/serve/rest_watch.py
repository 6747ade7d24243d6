"""Watch over REST: one JSON object a line, or length-prefixed protobuf frames.

Events leave in batches: one write to the socket for each batch that the cache hands out.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import Any

import orjson
from aiohttp import web

from apiserver.serve import answers
from apiserver.serve.negotiate import PROTOBUF, Form
from podyard.api import codec
from podyard.api.errors import ApiError
from podyard.api.resources import Resource
from podyard.api.types import meta_v1
from podyard.base import clock, ids

# Upstream: a watch without timeoutSeconds lives 30 to 60 minutes, so that clients spread anew.
_SHORTEST_S = 1800.0


class WatchStream:
    """Writes the frames of one watch to one response.

    Args:
        row: what is watched.
        form: media type and conversion.
        include_object: see `answers.table`.
    """

    def __init__(self, row: Resource, form: Form, include_object: str = "") -> None:
        self._row = row
        self._form = form
        self._include_object = include_object
        self._columns_sent = False

    async def run(
        self, request: web.Request, frames: AsyncIterator[Any], timeout_s: float
    ) -> web.StreamResponse:
        """Streams until the client goes, the watch ends or the time is over."""
        response = web.StreamResponse(headers={"Content-Type": self._content_type})
        response.enable_chunked_encoding()
        await response.prepare(request)
        # A given time is the registry's to keep, which ends with a last bookmark: only guard it.
        limit_s = timeout_s + 1 if timeout_s else _SHORTEST_S * (1 + ids.jitter())
        try:
            async with clock.timeout(limit_s):
                async for frame in frames:
                    await response.write(b"".join(self._frame(frame)))
        except TimeoutError:
            pass
        except ApiError as error:
            await response.write(self._event("ERROR", self._status(error)))
        except (ConnectionError, asyncio.CancelledError):
            raise
        finally:
            await frames.aclose()  # type: ignore[attr-defined]
        await response.write_eof()
        return response

    @property
    def _content_type(self) -> str:
        return f"{PROTOBUF};stream=watch" if self._form.media == PROTOBUF else "application/json"

    def _frame(self, frame: Any) -> list[bytes]:
        if frame.bookmark:
            return [self._event("BOOKMARK", self._bookmark(frame))]
        return [self._event(kind, self._object(item)) for kind, item in frame.events]

    def _event(self, kind: str, body: bytes) -> bytes:
        if self._form.media == PROTOBUF:
            event = meta_v1.WatchEvent(type=kind, object={"raw": body}).SerializeToString()
            return struct.pack(">I", len(event)) + event
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), body)

    def _object(self, item: Any) -> bytes:
        if self._form.as_kind == answers.TABLE:
            return orjson.dumps(self._table(item))
        if self._form.media == PROTOBUF or self._form.as_kind:
            return answers.object_body(self._row, item, self._form, now_s=clock.now_s())
        body: bytes = item.json
        return body

    def _table(self, item: Any) -> dict[str, Any]:
        made = answers.table(
            self._row,
            [item],
            now_s=clock.now_s(),
            include_object=self._include_object,
            with_columns=not self._columns_sent,
        )
        self._columns_sent = True
        return made

    def _bookmark(self, frame: Any) -> bytes:
        row, media = self._row, self._form.media
        body = answers.bookmark(row, frame.revision, initial_events_end=frame.initial_events_end, media=media)
        if media == PROTOBUF:
            obj: Any = row.message()
            obj.metadata.resourceVersion = str(frame.revision)
            obj.metadata.annotations.update(body["metadata"].get("annotations", {}))
            if self._form.as_kind:
                partial = meta_v1.PartialObjectMetadata(metadata=obj.metadata)
                return codec.encode_envelope(partial, "meta.k8s.io/v1", answers.PARTIAL)
            return codec.encode_envelope(obj, row.api_version, row.kind)
        if self._form.as_kind == answers.TABLE:
            partial_object = {
                "kind": answers.PARTIAL,
                "apiVersion": "meta.k8s.io/v1",
                "metadata": body["metadata"],
            }
            metadata = {"resourceVersion": str(frame.revision)}
            rows = [{"cells": [], "object": partial_object}]
            body = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
            body |= {"columnDefinitions": None, "rows": rows}
        elif self._form.as_kind:
            body |= {"kind": answers.PARTIAL, "apiVersion": "meta.k8s.io/v1"}
        return orjson.dumps(body)

    def _status(self, error: ApiError) -> bytes:
        return answers.status_body(
            error.to_status(), PROTOBUF if self._form.media == PROTOBUF else "application/json"
        ).rstrip(b"\n")
