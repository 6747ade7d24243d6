"""Shared fixtures; tests marked `virtual` run on the virtual loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
from hypothesis import HealthCheck, settings

from podyard.testing.loop import VirtualLoop

# How long an example takes says something of the machine, nothing of the code.
settings.register_profile("podyard", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("podyard")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("virtual"):
        return {"virtual": VirtualLoop}
    return {"real": asyncio.new_event_loop}
