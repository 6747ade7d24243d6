"""Service-account tokens of the node's pods: asked for, kept, and renewed well before they end.

Source: pkg/kubelet/token/token_manager.go.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

from podyard.api.errors import ApiError
from podyard.api.types import Pod, TokenRequest
from podyard.base import clock, ids, log
from podyard.client.client import Client

_LOGGER = log.get_logger("kubelet.tokens")
_RENEW_AT = 0.8
_LONGEST_USE_S = 24 * 3600
_JITTER_S = 10
_BOUND = 2000


class Tokens(Protocol):
    """What volumes ask."""

    async def get(self, pod: Pod, audience: str, expiration_s: int) -> str: ...

    def forget(self, uid: str) -> None: ...


@dataclass(frozen=True, slots=True)
class _Kept:
    token: str
    expires_s: float
    renew_s: float


def renewal_s(expires_s: float, lifetime_s: float, jitter: float) -> float:
    """When a token is renewed: at four fifths of its life, after a day at the latest.

    Args:
        jitter: in [0, 1), so that a node's tokens are not all renewed at once.
    """
    used_s = min(_RENEW_AT * lifetime_s, _LONGEST_USE_S)
    return expires_s - lifetime_s + used_s - jitter * _JITTER_S


class TokenManager:
    """Tokens bound to pods, from the API server.

    Args:
        client: of the node.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept: OrderedDict[tuple[str, str, str, int], _Kept] = OrderedDict()

    async def get(self, pod: Pod, audience: str, expiration_s: int) -> str:
        """A valid token of the pod's account.

        Args:
            audience: empty for the API server's own.
            expiration_s: wanted life in seconds, cluster time.

        Raises:
            ApiError: there is none and none can be had.
        """
        key = (pod.metadata.uid, pod.spec.serviceAccountName, audience, expiration_s)
        kept, now_s = self._kept.get(key), clock.now_s()
        if kept is not None and now_s < kept.renew_s:
            return kept.token
        try:
            fresh = await self._ask(pod, audience, expiration_s)
        except ApiError as error:
            if kept is None or now_s >= kept.expires_s:
                raise
            # The old one still opens the door; the next look at the volume tries again.
            _LOGGER.warning("token not renewed", pod=pod.metadata.name, error=error.message)
            return kept.token
        self._kept[key] = fresh
        self._kept.move_to_end(key)
        if len(self._kept) > _BOUND:
            self._kept.popitem(last=False)
        return fresh.token

    def forget(self, uid: str) -> None:
        """Drops the tokens of a pod that is gone."""
        for key in [key for key in self._kept if key[0] == uid]:
            del self._kept[key]

    async def _ask(self, pod: Pod, audience: str, expiration_s: int) -> _Kept:
        metadata = pod.metadata
        request = TokenRequest(
            spec={
                "audiences": [audience] if audience else [],
                "expirationSeconds": expiration_s,
                "boundObjectRef": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": metadata.name,
                    "uID": metadata.uid,
                },
            }
        )
        answer = await self._client.create_token(metadata.namespace, pod.spec.serviceAccountName, request)
        expires_s = float(answer.status.expirationTimestamp.seconds)
        renew_s = renewal_s(expires_s, answer.spec.expirationSeconds, ids.jitter())
        return _Kept(answer.status.token, expires_s, renew_s)
