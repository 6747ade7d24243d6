"""How counts, names and commands stand in what users read: pure."""

from __future__ import annotations

from collections.abc import Sequence

from podyard.cluster.spec import DEFAULT_NAME

_FEW = 4


def counted(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`.

    Args:
        noun: in the singular; its plural ends in s.
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def named(names: Sequence[str], noun: str) -> str:
    """`2 nodes (a, b)`; of many only how many."""
    which = f" ({', '.join(names)})" if 0 < len(names) <= _FEW else ""
    return counted(len(names), noun) + which


def podyard_on(cluster: str) -> str:
    """What a command on a cluster begins with: `podyard`, or with `--name` for all but the default one."""
    return "podyard" if cluster == DEFAULT_NAME else f"podyard --name {cluster}"
