"""What a pod's worker may not try yet: back-off by target."""

from __future__ import annotations

from dataclasses import dataclass

from podyard.base import clock, ids
from podyard.base.backoff import Backoff

# Between tries of what failed: a mount, a sandbox, the start of a container.
_ERROR_BACKOFF = Backoff(base_s=1.0, cap_s=10.0)


@dataclass(slots=True)
class _Retry:
    failures: int = 0
    not_before_s: float = 0.0


class Retries:
    """What failed, by target, and when each may be tried again.

    Any event wakes a pod's worker; this keeps it from trying what has just failed at each of them.
    """

    def __init__(self) -> None:
        self._targets: dict[str, _Retry] = {}

    def failed(self, target: str, backoff: Backoff = _ERROR_BACKOFF) -> float:
        """Counts a failure; answers when to try again."""
        retry = self._targets.setdefault(target, _Retry())
        retry.not_before_s = clock.now_s() + backoff.delay_s(retry.failures, ids.jitter())
        retry.failures += 1
        return retry.not_before_s

    def hold(self, target: str, until_s: float) -> float:
        """Sets when to try again by other rules than the back-off."""
        self._targets.setdefault(target, _Retry()).not_before_s = until_s
        return until_s

    def held_until_s(self, target: str) -> float | None:
        """When the target may be tried again; None for now."""
        retry = self._targets.get(target)
        return retry.not_before_s if retry is not None and retry.not_before_s > clock.now_s() else None

    def failures(self, target: str) -> int:
        """How often it failed since it last worked."""
        retry = self._targets.get(target)
        return retry.failures if retry is not None else 0

    def worked(self, target: str) -> None:
        self._targets.pop(target, None)
