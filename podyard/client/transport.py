"""The interface between a component and an API server.

Two implementations: gRPC between containers (`grpc_transport`) and direct calls in one process
(`local_transport`), which `podyard dev` and the simulation use. Both take the gRPC method name
and raise the same `ApiError` subclasses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from podyard.api.types import M, Message

# Longer than any healthy answer, shorter than a person's patience: upstream's client uses 34 s.
DEFAULT_TIMEOUT_S = 30.0


class Transport(Protocol):
    """Calls methods of an API server by their gRPC names, such as `/podyard.core.v1.PodService/Get`."""

    async def call(
        self, method: str, request: Message, response: type[M], *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> M:
        """One request, one answer.

        Raises:
            ApiError: the server's answer, or `Unavailable` / `Timeout` when there was none. After
                either of these a write may or may not have happened.
        """
        ...

    def stream(self, method: str, request: Message, response: type[M]) -> AsyncIterator[M]:
        """One request, many answers, until the caller stops or the server ends the stream.

        Raises:
            ApiError: as `call`; a broken connection is `Unavailable`.
        """
        ...

    async def close(self) -> None:
        """Ends connections; calls in flight fail with `Unavailable`."""
        ...
