"""What a client is told of the store's and the cache's troubles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from apiserver.store.base import (
    Expired,
    FutureRevision,
    KeyExists,
    OutcomeUnknown,
    RevisionMismatch,
    StoreError,
    StoreUnavailable,
    ValueTooLarge,
)
from apiserver.watchcache_events import CacheNotReady, RevisionTooLarge, RevisionTooOld
from podyard.api import errors
from podyard.api.errors import ApiError


def api_error(error: Exception) -> ApiError:
    """The answer for a failure of the store or the watch cache."""
    match error:
        case ValueTooLarge():
            return errors.RequestEntityTooLarge.of("etcdserver: request is too large")
        case OutcomeUnknown():
            # 504: the deadline passed and the state is unknown. Not retryable as it stands.
            return errors.Timeout.of(f"request did not complete within the allotted timeout: {error}")
        case StoreUnavailable():
            return errors.Unavailable(str(error), retry_after_s=1)
        case Expired():
            return errors.Expired.list_compacted()
        case RevisionTooOld():
            return errors.Expired.too_old(error.requested, error.oldest)
        case RevisionTooLarge():
            return errors.Timeout.too_large_version(error.requested, error.current)
        case CacheNotReady():
            return errors.TooManyRequests("storage is (re)initializing", retry_after_s=1)
        case FutureRevision():
            return errors.Timeout.of(str(error), retry_after_s=1)
    return errors.InternalError.of(str(error))


@contextmanager
def translated() -> Iterator[None]:
    """Turns failures of the store and the cache inside the block into `ApiError`."""
    try:
        yield
    except (KeyExists, RevisionMismatch):
        # Not troubles but answers: the caller decides what they mean.
        raise
    except (StoreError, RevisionTooOld, RevisionTooLarge, CacheNotReady) as error:
        raise api_error(error) from error
