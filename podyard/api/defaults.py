"""Defaults that the server fills into objects, by message class. Functions change the object in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podyard.api.types import Message


def none(obj: Any) -> None:
    """For kinds without defaults."""


DEFAULTS: Mapping[type[Message], Callable[[Any], None]] = {}
