"""What CRI says, translated."""

from __future__ import annotations

import pytest

from kubelet.runtime.cri import container_of
from podyard.api.types import cri

SECOND = 10**9


@pytest.mark.parametrize(
    ("started", "finished", "shown"),
    [
        (0, 0, (0.0, 0.0)),  # created only
        (5 * SECOND, 0, (5.0, 0.0)),  # running
        (5 * SECOND, 9 * SECOND, (5.0, 9.0)),
        # It ended before containerd had noted that it runs.
        (9 * SECOND, 5 * SECOND, (5.0, 5.0)),
        (0, 5 * SECOND, (0.0, 5.0)),  # never started
    ],
)
def test_no_container_ends_before_it_starts(started, finished, shown):
    status = cri.ContainerStatus(id="c", state=cri.CONTAINER_EXITED, started_at=started, finished_at=finished)
    container = container_of("s", status)
    assert (container.started_at_s, container.finished_at_s) == shown
