"""Images: whether to pull (pure), and pulling with back-off, one pull of an image at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from kubelet.runtime.base import Runtime, RuntimeFailure
from podyard.base import clock, ids
from podyard.base.backoff import Backoff

# Upstream: image pull back-off.
_BACKOFF = Backoff(base_s=10.0, cap_s=300.0, spread=0.0)
_PARALLEL_PULLS = 2
_KNOWN_FAILURES = 1000

Announce = Callable[[str, str, str], None]


class PullError(Exception):
    """An image is not to be had now.

    Attributes:
        reason: ErrImagePull, ImagePullBackOff, ErrImageNeverPull, InvalidImageName, ...
        retry_at_s: when a try makes sense again; None when only a changed pod helps.
    """

    def __init__(self, reason: str, message: str, retry_at_s: float | None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retry_at_s = retry_at_s


def default_policy(image: str) -> str:
    """Always for `:latest` or no tag, else IfNotPresent."""
    name = image.partition("@")[0]
    tag = name.rpartition("/")[2].partition(":")[2]
    if "@" in image:
        return "IfNotPresent"
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def must_pull(policy: str, *, present: bool) -> bool:
    """Whether a pull is due."""
    return policy == "Always" or (policy != "Never" and not present)


def normalized(image: str) -> str:
    """The full reference of a short name: docker.io, library and latest are understood."""
    name, at, digest = image.partition("@")
    first, slash, _ = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif "." not in first and ":" not in first and first != "localhost":
        name = f"docker.io/{name}"
    if not at and ":" not in name.rpartition("/")[2]:
        name += ":latest"
    return f"{name}{at}{digest}"


def go_duration(seconds: float) -> str:
    """345ms, 1.204s, 1m2.5s: as event texts show durations."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    minutes, rest = divmod(round(seconds, 3), 60)
    return f"{int(minutes)}m{rest:g}s" if minutes else f"{rest:g}s"


@dataclass(slots=True)
class _Failure:
    attempts: int
    until_s: float
    text: str


class ImagePuller:
    """Makes images present."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._slots = asyncio.Semaphore(_PARALLEL_PULLS)
        self._locks: dict[str, asyncio.Lock] = {}
        self._failures: dict[tuple[str, str], _Failure] = {}

    async def ensure(self, pod_uid: str, image: str, policy: str, announce: Announce) -> str:
        """Answers the reference to run.

        Args:
            announce: records an event: (type, reason, message).

        Raises:
            PullError: with the waiting reason for the container's status.
        """
        reference = normalized(image)
        try:
            present = await self._runtime.image(reference)
        except RuntimeFailure as failure:
            text = f'Failed to inspect image "{image}": {failure.message}'
            announce("Warning", "InspectFailed", text)
            raise PullError("ImageInspectError", text, clock.now_s() + 10) from None
        if not must_pull(policy or default_policy(image), present=present is not None):
            if present is not None:
                text = f'Container image "{image}" already present on machine and can be accessed by the pod'
                announce("Normal", "Pulled", text)
                return reference
            text = f'Container image "{image}" is not present with pull policy of Never'
            announce("Warning", "ErrImageNeverPull", text)
            raise PullError("ErrImageNeverPull", text, None)
        self._refuse_during_backoff(pod_uid, image, announce)
        await self._pull(pod_uid, image, reference, announce)
        return reference

    def _refuse_during_backoff(self, pod_uid: str, image: str, announce: Announce) -> None:
        failure = self._failures.get((pod_uid, image))
        if failure is None or clock.now_s() >= failure.until_s:
            return
        text = f'Back-off pulling image "{image}": {failure.text}'
        announce("Normal", "BackOff", f'Back-off pulling image "{image}"')
        raise PullError("ImagePullBackOff", text, failure.until_s)

    async def _pull(self, pod_uid: str, image: str, reference: str, announce: Announce) -> None:
        announce("Normal", "Pulling", f'Pulling image "{image}"')
        asked_s = clock.real_monotonic_s()
        lock = self._locks.setdefault(reference, asyncio.Lock())
        try:
            async with lock, self._slots:
                began_s = clock.real_monotonic_s()
                await self._runtime.pull(reference)
        except RuntimeFailure as failure:
            raise self._failed(pod_uid, image, failure, announce) from None
        finally:
            if not lock.locked():
                self._locks.pop(reference, None)
        self._failures.pop((pod_uid, image), None)
        ended_s = clock.real_monotonic_s()
        took, waited = go_duration(ended_s - began_s), go_duration(ended_s - asked_s)
        info = await self._runtime.image(reference)
        size = info.size_bytes if info is not None else 0
        waiting = f"({waited} including waiting)"
        text = f'Successfully pulled image "{image}" in {took} {waiting}. Image size: {size} bytes.'
        announce("Normal", "Pulled", text)

    def _failed(self, pod_uid: str, image: str, failure: RuntimeFailure, announce: Announce) -> PullError:
        key = (pod_uid, image)
        known = self._failures.get(key)
        attempts = known.attempts + 1 if known else 1
        until_s = clock.now_s() + _BACKOFF.delay_s(attempts - 1, ids.jitter())
        text = f"rpc error: code = {_go_code(failure.code)} desc = {failure.message}"
        announce("Warning", "Failed", f'Failed to pull image "{image}": {text}')
        announce("Warning", "Failed", "Error: ErrImagePull")
        invalid = "invalid reference format" in failure.message
        reason = "InvalidImageName" if invalid else "ErrImagePull"
        if len(self._failures) >= _KNOWN_FAILURES:
            self._failures.pop(next(iter(self._failures)))
        self._failures[key] = _Failure(attempts, until_s, f"{reason}: {text}")
        return PullError(reason, text, until_s)

    def forget(self, pod_uid: str) -> None:
        """Drops what is known of a pod's failures."""
        for key in [key for key in self._failures if key[0] == pod_uid]:
            del self._failures[key]


def _go_code(name: str) -> str:
    """NOT_FOUND -> NotFound: how Go prints gRPC codes."""
    return "".join(part.capitalize() for part in name.split("_"))
