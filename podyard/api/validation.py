"""Validation of whole objects, by message class: every error at once, in upstream's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podyard.api.types import Message, StatusCause


def nothing(obj: Any) -> list[StatusCause]:
    """For kinds without rules."""
    return []


def nothing_new(new: Any, old: Any) -> list[StatusCause]:
    """For kinds without rules about changes."""
    return []


VALIDATE: Mapping[type[Message], Callable[[Any], list[StatusCause]]] = {}
VALIDATE_UPDATE: Mapping[type[Message], Callable[[Any, Any], list[StatusCause]]] = {}
