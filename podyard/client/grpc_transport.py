"""The transport between containers: gRPC over mutual TLS, to one of several API servers.

It stays on one endpoint and goes to the next when that one cannot be reached. Reads are repeated
there at once; a write is not, since it may have happened: the caller, who works from what it
watches, decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio

from podyard.api.errors import ApiError
from podyard.api.types import M, Message
from podyard.base.config import TlsFiles
from podyard.client.grpc_status import DETAILS_KEY, from_details
from podyard.client.transport import DEFAULT_TIMEOUT_S

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
CHANNEL_OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A frozen server holds its connections open: pings find that out.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # How long an attempt to connect may take at least; on a busy machine a TLS handshake takes its time.
    ("grpc.min_reconnect_backoff_ms", 3_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_retries", 0),
)
_READS = frozenset({"Get", "List"})


def credentials_of(tls: TlsFiles) -> grpc.ChannelCredentials:
    """Channel credentials from a component's certificate files."""
    return grpc.ssl_channel_credentials(
        Path(tls.ca).read_bytes(), Path(tls.key).read_bytes(), Path(tls.cert).read_bytes()
    )


class GrpcTransport:
    """Implements `Transport` over grpc.aio.

    Args:
        endpoints: `host:port` of each API server, in order of preference.
        credentials: mutual TLS, see `credentials_of`.
        user_agent: shown in the server's logs.
    """

    def __init__(
        self, endpoints: Sequence[str], credentials: grpc.ChannelCredentials, *, user_agent: str = "podyard"
    ) -> None:
        if not endpoints:
            raise ValueError("no API server is configured (apiservers)")
        options = [*CHANNEL_OPTIONS, ("grpc.primary_user_agent", user_agent)]
        self._channels = [grpc.aio.secure_channel(endpoint, credentials, options) for endpoint in endpoints]
        self._current = 0

    async def call(
        self, method: str, request: Message, response: type[M], *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> M:
        tries = len(self._channels) if method.rpartition("/")[2] in _READS else 1
        while True:
            index = self._current
            unary = self._channels[index].unary_unary(
                method,
                request_serializer=type(request).SerializeToString,
                response_deserializer=response.FromString,
            )
            try:
                return cast("M", await unary(request, timeout=timeout_s))
            except grpc.aio.AioRpcError as error:
                tries -= 1
                self._step_over(index, error)
                if tries <= 0 or error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise _api_error(error) from None

    async def stream(self, method: str, request: Message, response: type[M]) -> AsyncIterator[M]:
        index = self._current
        call = self._channels[index].unary_stream(
            method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )(request)
        try:
            async for answer in call:
                yield cast("M", answer)
        except grpc.aio.AioRpcError as error:
            self._step_over(index, error)
            raise _api_error(error) from None
        except asyncio.CancelledError:
            raise
        finally:
            call.cancel()

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close(None)

    def _step_over(self, index: int, error: grpc.aio.AioRpcError) -> None:
        # Only the first of many failing calls moves on, else they would leap past each other.
        if error.code() is grpc.StatusCode.UNAVAILABLE and index == self._current:
            self._current = (index + 1) % len(self._channels)


def _api_error(error: grpc.aio.AioRpcError) -> ApiError:
    details: Any = None
    metadata: Any = error.trailing_metadata() or ()
    for key, value in metadata:
        if key == DETAILS_KEY:
            details = value
    return from_details(error.code().value[0], error.details() or "", details)
