"""What a scheduling plugin is: filters and scores as plain functions in one row of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from podyard.api.types import Pod
from scheduler.cache import NodeState

MAX_SCORE = 100


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a node does not fit.

    Attributes:
        reasons: upstream's texts, as they are counted in FailedScheduling.
        resolvable: whether removing other pods could help.
    """

    reasons: tuple[str, ...]
    resolvable: bool = True


# prepare(pod) -> what filter and score need of the pod, made once a cycle.
Prepare = Callable[[Pod], Any]
# filter(prepared, node) -> None when it fits.
Filter = Callable[[Any, NodeState], Refusal | None]
# score(prepared, node) -> any integer; normalize turns a cycle's scores into 0..100.
Score = Callable[[Any, NodeState], int]
Normalize = Callable[[list[int]], list[int]]


def as_they_are(scores: list[int]) -> list[int]:
    return scores


def by_maximum(scores: list[int]) -> list[int]:
    """The highest becomes 100, the others in proportion."""
    highest = max(scores, default=0)
    return [score * MAX_SCORE // highest for score in scores] if highest > 0 else scores


def by_maximum_reversed(scores: list[int]) -> list[int]:
    """The lowest is best: 0 becomes 100, the highest 0."""
    highest = max(scores, default=0)
    if highest == 0:
        return [MAX_SCORE] * len(scores)
    return [MAX_SCORE - score * MAX_SCORE // highest for score in scores]


@dataclass(frozen=True, slots=True)
class Plugin:
    """One plugin.

    Attributes:
        events: what may make a pod schedulable that this plugin refused: "node", "pod deleted",
            "pod changed".
    """

    name: str
    prepare: Prepare
    filter: Filter | None = None
    score: Score | None = None
    normalize: Normalize = as_they_are
    weight: int = 1
    events: frozenset[str] = frozenset({"node"})
