"""Nodes: spec and status are written apart.

Counterpart: kubernetes pkg/registry/core/node.
"""

from __future__ import annotations

from podyard.api.types import Node


def prepare_update(new: Node, old: Node) -> None:
    """Only metadata and spec change."""
    new.status.CopyFrom(old.status)


def prepare_status(new: Node, old: Node) -> None:
    """Only metadata and status change."""
    new.spec.CopyFrom(old.spec)
