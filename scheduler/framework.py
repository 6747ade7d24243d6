"""What a scheduling plugin is: filters and scores as plain functions in one row of a table.

A decision asks each plugin what it must know of the pod and of the whole cluster once (`pre_filter`,
`pre_score`), then about each node (`filter`, `score`). A plugin to which a pod is indifferent
answers None to the first question and costs nothing for each node.

Counterpart: kubernetes pkg/scheduler/framework, extension points PreFilter, Filter, PreScore, Score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from scheduler.cache import Cache, NodeState
from scheduler.pods import PodFacts, Subject

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


# pre_filter(pod, cluster) -> what filter needs, made once a decision; None: nothing to refuse.
PreFilter = Callable[[Subject, Cache], Any]
# filter(prepared, node) -> None when it fits.
Filter = Callable[[Any, NodeState], Refusal | None]
# pre_score(pod, cluster, nodes that fit) -> what score needs; None: all nodes are the same.
PreScore = Callable[[Subject, Cache, Sequence[NodeState]], Any]
# score(prepared, node) -> any integer; normalize turns a decision's scores into 0..100.
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


class Event(Enum):
    """What may make a refused pod schedulable, whatever it looks like in detail."""

    NODE = "a node came, or changed in what decisions look at"
    NODE_GONE = "a node is gone"
    POD_GONE = "a pod does not count on its node any more"


@dataclass(frozen=True, slots=True)
class PodChange:
    """A pod with a node came (`old` is None), changed, or does not count any more (`new` is None)."""

    old: PodFacts | None
    new: PodFacts | None


# helps(refused pod, change, cluster) -> whether the pod should be tried again.
Helps = Callable[[Subject, PodChange, Cache], bool]


@dataclass(frozen=True, slots=True)
class Plugin:
    """One plugin.

    Attributes:
        events: what may make a pod schedulable that this plugin refused.
        helps: the same for changes of other pods, where it depends on which pod it is.
    """

    name: str
    pre_filter: PreFilter | None = None
    filter: Filter | None = None
    pre_score: PreScore | None = None
    score: Score | None = None
    normalize: Normalize = as_they_are
    weight: int = 1
    events: frozenset[Event] = frozenset({Event.NODE})
    helps: Helps | None = None
