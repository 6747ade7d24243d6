"""What clients leave open."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def left_behind() -> Iterator[None]:
    """For clients that leave their sockets to the collector: it finds them now, not in other tests."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
