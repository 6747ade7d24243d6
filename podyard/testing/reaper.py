"""testcontainers' reaper (Ryuk), where it is installed and not switched off.

It removes whatever has its session's label once the session's process is gone. It is a second net: a
cluster of a process that was killed is removed by the next start in any case.
"""

from __future__ import annotations

import warnings


def labels() -> tuple[tuple[str, str], ...]:
    """Starts the reaper if need be; the labels of its session. None where it is not to be had."""
    try:
        from testcontainers.core.config import testcontainers_config
        from testcontainers.core.container import Reaper
        from testcontainers.core.labels import create_labels
    except ImportError:
        return ()
    if testcontainers_config.ryuk_disabled:
        return ()
    try:
        Reaper.get_instance()
    except Exception as error:  # a second net: whatever keeps it from starting, tests go on
        warnings.warn(f"testcontainers' reaper does not start: {error}", RuntimeWarning, stacklevel=2)
        return ()
    return tuple(create_labels("", None).items())
