"""Creates objects with generated names exactly once, although answers get lost.

The name is chosen here, not by the server: a create whose answer was lost is sent again under the
same name, and "exists already" then means that it had happened. What stays uncertain is asked for
before the key is decided on again.
"""

from __future__ import annotations

from typing import Any

from podyard.api import errors
from podyard.api.errors import ApiError
from podyard.api.types import Message, copy_of
from podyard.base import clock, ids
from podyard.base.backoff import Backoff
from podyard.client.client import Client

_TRIES = 4
_BACKOFF = Backoff(base_s=0.2, cap_s=2.0)
# Upstream: names are at most 63 long, five of that the random part.
_BASE_CHARACTERS = 58


class Creator:
    """Creates for one controller."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(self, obj: Message, uncertain: list[Message]) -> Message:
        """Creates an object; answers it as stored.

        Args:
            uncertain: gets the object, with its name, when nobody can tell whether it exists now.

        Raises:
            AlreadyExists: for an object with a name of its own.
            ApiError: it was refused, or is uncertain.
        """
        if not _is_generated(obj):
            return await self._client.create(obj)
        wanted = _named(obj)
        lost: ApiError | None = None
        for attempt in range(_TRIES):
            try:
                return await self._client.create(wanted)
            except errors.AlreadyExists:
                found = await self._found(wanted, uncertain) if lost is not None else None
                if found is not None:
                    return found
                wanted, lost = _named(obj), None  # another's: take another name
            except ApiError as error:
                if not error.retryable:
                    raise
                lost = error
                await clock.sleep(max(_BACKOFF.delay_s(attempt, ids.jitter()), error.retry_after_s))
        if lost is None:
            raise errors.AlreadyExists("no free name was found")
        uncertain.append(wanted)
        raise lost

    async def _found(self, wanted: Message, uncertain: list[Message]) -> Message | None:
        try:
            return await self.find(wanted)
        except ApiError:
            uncertain.append(wanted)
            raise

    async def find(self, wanted: Message) -> Message | None:
        """The object that an uncertain create made; None when it made none.

        Raises:
            ApiError: this can't be told now.
        """
        metadata: Any = wanted.metadata  # type: ignore[attr-defined]
        try:
            found: Any = await self._client.get(type(wanted), metadata.name, metadata.namespace)
        except errors.NotFound:
            return None
        return found if _owner(found) == _owner(wanted) else None


def _is_generated(obj: Any) -> bool:
    return bool(obj.metadata.generateName) and not obj.metadata.name


def _named(obj: Message) -> Message:
    named: Any = copy_of(obj)
    named.metadata.name = named.metadata.generateName[:_BASE_CHARACTERS] + ids.name_suffix()
    return named  # type: ignore[no-any-return]


def _owner(obj: Any) -> str:
    return next((owner.uid for owner in obj.metadata.ownerReferences if owner.controller), "")
