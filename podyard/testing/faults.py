"""Faults between a part of the cluster and the API server."""

from __future__ import annotations

from podyard.api import errors
from podyard.base import clock, ids


class Link:
    """The way between one part and the API server; a `LocalTransport`'s gate.

    The gate is passed by a request on its way in and by its answer on its way out, so a write may
    be lost before it happened or after: the caller cannot tell, as over a real network.
    """

    def __init__(self) -> None:
        self.is_cut = False
        self._lost = 0.0
        self._delay_s = 0.0

    def cut(self) -> None:
        """Nothing passes."""
        self.is_cut = True

    def disturb(self, *, lost: float = 0.0, delay_s: float = 0.0) -> None:
        """Makes the link poor.

        Args:
            lost: part of the messages that break their connection, 0 to 1.
            delay_s: the longest time, in cluster seconds, that a message takes.
        """
        self._lost, self._delay_s = lost, delay_s

    def mend(self) -> None:
        """All passes at once again."""
        self.is_cut = False
        self.disturb()

    async def gate(self) -> None:
        """Lets one message pass.

        Raises:
            Unavailable: it is lost, and the connection with it.
        """
        if self._delay_s:
            await clock.sleep(self._delay_s * ids.jitter())
        if self.is_cut or (self._lost and ids.jitter() < self._lost):
            raise errors.Unavailable("the connection is broken")
