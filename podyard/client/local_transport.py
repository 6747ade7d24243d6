"""The transport within one process: the API server's own handlers, called directly.

It takes the very method table that the gRPC server mounts. Messages are copied on the way, as a
wire would, so that no two components share an object.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from podyard.api import errors
from podyard.api.types import M, Message
from podyard.base import clock
from podyard.client.transport import DEFAULT_TIMEOUT_S


class LocalMethod(Protocol):
    """What is called: a unary coroutine or an async generator taking (context, request)."""

    @property
    def handler(self) -> Any: ...


class LocalTransport:
    """Implements `Transport` over a method table.

    Args:
        methods: gRPC method name -> method.
        context: who calls, handed to every handler.
        gate: awaited before each call; raises to cut the link (the simulation's faults).
    """

    def __init__(self, methods: Mapping[str, LocalMethod], context: Any, gate: Any = None) -> None:
        self._methods = methods
        self._context = context
        self._gate = gate
        self._closed = False

    async def call(
        self, method: str, request: Message, response: type[M], *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> M:
        try:
            async with clock.timeout(timeout_s):
                handler = await self._enter(method)
                answer = await handler(self._context, _copy(request))
                if self._gate is not None:
                    await self._gate()
        except TimeoutError:
            raise errors.Timeout.of("request did not complete within the allotted timeout") from None
        return _received(answer, response)

    async def stream(self, method: str, request: Message, response: type[M]) -> AsyncIterator[M]:
        handler = await self._enter(method)
        answers = handler(self._context, _copy(request))
        try:
            async for answer in answers:
                if self._gate is not None:
                    await self._gate()
                if self._closed:
                    raise errors.Unavailable("the transport is closed")
                yield _received(answer, response)
        finally:
            await answers.aclose()

    async def close(self) -> None:
        self._closed = True

    async def _enter(self, method: str) -> Any:
        if self._closed:
            raise errors.Unavailable("the transport is closed")
        if self._gate is not None:
            await self._gate()
        found = self._methods.get(method)
        if found is None:
            raise errors.MethodNotAllowed(f"unknown method {method}")
        return found.handler


def _copy(message: Message) -> Message:
    return type(message).FromString(message.SerializeToString())


def _received(answer: Message | bytes, response: type[M]) -> M:
    raw = answer if isinstance(answer, bytes) else answer.SerializeToString()
    return response.FromString(raw)
