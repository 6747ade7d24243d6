"""testcontainers' reaper (Ryuk), where it is installed and not switched off.

It removes whatever has its session's label once the session's process is gone. It is a second net: a
cluster of a process that was killed is removed by the next start in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

_WITHOUT = "testcontainers' reaper does not start: what a killed run leaves, the next start removes"


def labels(note: Callable[[str], None]) -> tuple[tuple[str, str], ...]:
    """Starts the reaper if need be; the labels of its session. None where it is not to be had.

    Args:
        note: told in a sentence where it does not start, which is no reason to warn anybody.
    """
    try:
        from testcontainers.core.config import testcontainers_config
        from testcontainers.core.labels import create_labels
    except ImportError:
        return ()
    if testcontainers_config.ryuk_disabled:
        return ()
    if not _runs():
        note(_WITHOUT)
        return ()
    return tuple(create_labels("", None).items())


@cache
def _runs() -> bool:
    """Whether it runs, started if need be; tried once a process, for its image may be asked for far away."""
    try:
        from testcontainers.core.container import Reaper

        Reaper.get_instance()
    except Exception:  # a second net: whatever keeps it from starting, tests go on
        return False
    return True
