"""Images: whether to pull (pure), and pulling with back-off, one pull of an image at a time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kubelet.runtime.base import Runtime, RuntimeFailure
from podyard.api import times
from podyard.base import clock, ids
from podyard.base.backoff import Backoff

# Upstream: image pull back-off.
_BACKOFF = Backoff(base_s=10.0, cap_s=300.0, spread=0.0)
_PARALLEL_PULLS = 2
_KNOWN_FAILURES = 1000
# Upstream looks at a pod that it could not sync every ten seconds or so.
_LOOK_AGAIN_S = 10.0
_SAY_BACKOFF_S = 1.0

# The grammar of image references (distribution's reference package).
_DOMAIN = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_HOST = rf"(?:{_DOMAIN}(?:\.{_DOMAIN})*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_TAG = r"[\w][\w.-]{0,127}"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_REFERENCE = re.compile(rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::{_TAG})?(?:@{_DIGEST})?", re.ASCII)

Announce = Callable[[str, str, str], None]


class PullError(Exception):
    """An image is not to be had now.

    Attributes:
        reason: ErrImagePull, ImagePullBackOff, ErrImageNeverPull, InvalidImageName, ...
        retry_at_s: when to ask again.
    """

    def __init__(self, reason: str, message: str, retry_at_s: float) -> None:
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


def invalid_reference(image: str) -> str | None:
    """What is wrong with an image name, in the words of its grammar's library; None when it is fine."""
    full = normalized(image)
    if _REFERENCE.fullmatch(full):
        return None
    path = full.partition("/")[2].partition(":")[0]
    if path != path.lower():
        return f"invalid reference format: repository name ({path}) must be lowercase"
    return "invalid reference format"


def go_duration(seconds: float) -> str:
    """345ms, 1.204s, 1m2.5s: as event texts show durations."""
    return times.duration_text(round(seconds * 1000) * 10**6)


@dataclass(slots=True)
class _Failure:
    attempts: int
    until_s: float
    text: str


@dataclass(slots=True)
class _Pull:
    """The lock of one reference; it goes with its last user, so none is ever locked out of it."""

    lock: asyncio.Lock
    users: int = 0


class ImagePuller:
    """Makes images present."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._slots = asyncio.Semaphore(_PARALLEL_PULLS)
        self._pulls: dict[str, _Pull] = {}
        self._failures: dict[tuple[str, str], _Failure] = {}

    async def ensure(self, pod_uid: str, image: str, policy: str, announce: Announce) -> str:
        """Answers the reference to run.

        Args:
            announce: records an event: (type, reason, message).

        Raises:
            PullError: with the waiting reason for the container's status.

        Cancellation: a pull under way is given up; its lock is free at once.
        """
        try:
            return await self._ensure(pod_uid, image, policy, announce)
        except PullError as error:
            announce("Warning", "Failed", f"Error: {error.reason}")
            raise

    async def _ensure(self, pod_uid: str, image: str, policy: str, announce: Announce) -> str:
        problem = invalid_reference(image)
        if problem is not None:
            why = f'couldn\'t parse image name "{image}": {problem}'
            text = f'Failed to apply default image tag "{image}": {why}'
            announce("Warning", "InspectFailed", text)
            raise PullError("InvalidImageName", text, clock.now_s() + _LOOK_AGAIN_S)
        reference = normalized(image)
        try:
            present = await self._runtime.image(reference)
        except RuntimeFailure as failure:
            text = f'Failed to inspect image "{image}": {failure.message}'
            announce("Warning", "InspectFailed", text)
            raise PullError("ImageInspectError", text, clock.now_s() + _LOOK_AGAIN_S) from None
        if not must_pull(policy or default_policy(image), present=present is not None):
            if present is not None:
                text = f'Container image "{image}" already present on machine and can be accessed by the pod'
                announce("Normal", "Pulled", text)
                return reference
            text = f'Container image "{image}" is not present with pull policy of Never'
            announce("Warning", "ErrImageNeverPull", text)
            # Someone may put it there by hand: look now and then.
            raise PullError("ErrImageNeverPull", text, clock.now_s() + _LOOK_AGAIN_S)
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

    @asynccontextmanager
    async def _alone(self, reference: str) -> AsyncIterator[None]:
        pull = self._pulls.setdefault(reference, _Pull(asyncio.Lock()))
        pull.users += 1
        try:
            async with pull.lock, self._slots:
                yield
        finally:
            pull.users -= 1
            if not pull.users:
                del self._pulls[reference]

    async def _pull(self, pod_uid: str, image: str, reference: str, announce: Announce) -> None:
        announce("Normal", "Pulling", f'Pulling image "{image}"')
        asked_s = clock.real_monotonic_s()
        try:
            async with self._alone(reference):
                began_s = clock.real_monotonic_s()
                await self._runtime.pull(reference)
        except RuntimeFailure as failure:
            raise self._failed(pod_uid, image, failure, announce) from None
        self._failures.pop((pod_uid, image), None)
        ended_s = clock.real_monotonic_s()
        took, waited = go_duration(ended_s - began_s), go_duration(ended_s - asked_s)
        waiting = f"({waited} including waiting)"
        size = await self._size_bytes(reference)
        text = f'Successfully pulled image "{image}" in {took} {waiting}. Image size: {size} bytes.'
        announce("Normal", "Pulled", text)

    async def _size_bytes(self, reference: str) -> int:
        try:
            info = await self._runtime.image(reference)
        except RuntimeFailure:
            return 0  # only the event's text asks: the pull itself has succeeded
        return info.size_bytes if info is not None else 0

    def _failed(self, pod_uid: str, image: str, failure: RuntimeFailure, announce: Announce) -> PullError:
        key = (pod_uid, image)
        known = self._failures.get(key)
        attempts = known.attempts + 1 if known else 1
        until_s = clock.now_s() + _BACKOFF.delay_s(attempts - 1, ids.jitter())
        text = f"rpc error: code = {_go_code(failure.code)} desc = {failure.message}"
        announce("Warning", "Failed", f'Failed to pull image "{image}": {text}')
        reason = "ErrImagePull"
        if len(self._failures) >= _KNOWN_FAILURES:
            self._failures.pop(next(iter(self._failures)))
        self._failures[key] = _Failure(attempts, until_s, f"{reason}: {text}")
        # Soon once more: then it says that it is backing off, and until when.
        return PullError(reason, text, clock.now_s() + _SAY_BACKOFF_S)

    def forget(self, pod_uid: str) -> None:
        """Drops what is known of a pod's failures."""
        for key in [key for key in self._failures if key[0] == pod_uid]:
            del self._failures[key]


def _go_code(name: str) -> str:
    """NOT_FOUND -> NotFound: how Go prints gRPC codes."""
    return "".join(part.capitalize() for part in name.split("_"))
