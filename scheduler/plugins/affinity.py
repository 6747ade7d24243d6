"""NodeName and NodeAffinity (nodeSelector, required and preferred node affinity).

Sources: nodename/node_name.go, nodeaffinity/node_affinity.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from podyard.api.types import core_v1
from scheduler.cache import Cache, NodeState
from scheduler.framework import Plugin, Refusal, by_maximum
from scheduler.nodematch import Required, required_of, term_matches
from scheduler.pods import Subject

_MISNAMED = Refusal(("node(s) didn't match the requested node name",), resolvable=False)
_MISMATCH = Refusal(("node(s) didn't match Pod's node affinity/selector",), resolvable=False)

_Preferred = tuple[core_v1.PreferredSchedulingTerm, ...]


def _name_of(subject: Subject, cache: Cache) -> str | None:
    return subject.pod.spec.nodeName or None


def filter_name(name: str, state: NodeState) -> Refusal | None:
    """Refuses every node but the one that the pod names."""
    return None if name == state.name else _MISNAMED


def _required(subject: Subject, cache: Cache) -> Required | None:
    return required_of(subject.pod)


def filter_affinity(required: Required, state: NodeState) -> Refusal | None:
    """Refuses nodes that selector or required affinity do not choose."""
    return None if required.chooses(state) else _MISMATCH


def _preferred(subject: Subject, cache: Cache, nodes: Sequence[NodeState]) -> _Preferred | None:
    if not subject.pod.spec.HasField("affinity"):
        return None
    affinity = subject.pod.spec.affinity.nodeAffinity
    return tuple(affinity.preferredDuringSchedulingIgnoredDuringExecution) or None


def score_affinity(preferred: _Preferred, state: NodeState) -> int:
    """The sum of the weights of the preferred terms that match."""
    return sum(entry.weight for entry in preferred if entry.weight and term_matches(entry.preference, state))


NAME = Plugin("NodeName", pre_filter=_name_of, filter=filter_name, events=frozenset())
AFFINITY = Plugin(
    "NodeAffinity",
    pre_filter=_required,
    filter=filter_affinity,
    pre_score=_preferred,
    score=score_affinity,
    normalize=by_maximum,
    weight=2,
)
