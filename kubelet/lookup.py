"""ConfigMaps and Secrets of the node's pods, read when needed and kept for a little while.

A pod's volumes are refreshed about every minute; between two pods that start together one read
serves both. While the API server can't be reached what is known stays in use.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from podyard.api import errors
from podyard.api.errors import ApiError
from podyard.api.types import Message
from podyard.base import clock
from podyard.client.client import Client

_FRESH_S = 5.0
_BOUND = 1000


class ObjectLookup:
    """Reads objects by kind and name."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: OrderedDict[tuple[Any, str, str], tuple[float, Any]] = OrderedDict()

    async def get(self, kind: type[Message], namespace: str, name: str) -> Any:
        """The object, None when it does not exist.

        Raises:
            ApiError: it can't be read and is not known.
        """
        key = (kind, namespace, name)
        known = self._known.get(key)
        now_s = clock.real_monotonic_s()
        if known is not None and now_s - known[0] < _FRESH_S and known[1] is not None:
            return known[1]
        try:
            found: Any = await self._client.get(kind, name, namespace)
        except errors.NotFound:
            found = None
        except ApiError as error:
            if known is not None and error.retryable:
                return known[1]
            raise
        self._known[key] = (now_s, found)
        self._known.move_to_end(key)
        if len(self._known) > _BOUND:
            self._known.popitem(last=False)
        return found
