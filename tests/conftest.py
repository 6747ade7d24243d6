"""Shared fixtures; tests marked `virtual` run on the virtual loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from podyard.testing.loop import VirtualLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("virtual"):
        return {"virtual": VirtualLoop}
    return {"real": asyncio.new_event_loop}
