"""InterPodAffinity: pods that want to be where others are, or must not be.

A term speaks of pods (namespaces and labels) and of a topology key: nodes with the same value of
that label are one place. Terms of the incoming pod look at the pods that are there; terms of those
look back at the incoming pod.

Sources: interpodaffinity/filtering.go, scoring.go, plugin.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from podyard.api.selectors import LabelSelector
from scheduler.cache import Cache, NodeState
from scheduler.framework import MAX_SCORE, Event, Plugin, PodChange, Refusal
from scheduler.podindex import Counts
from scheduler.pods import PodFacts, Subject, Term

# The weight of a required term of a pod that is there, when it speaks of the incoming one.
HARD_AFFINITY_WEIGHT = 1

_AFFINITY = Refusal(("node(s) didn't match pod affinity rules",), resolvable=False)
_ANTI = Refusal(("node(s) didn't match pod anti-affinity rules",))
_EXISTING = Refusal(("node(s) didn't satisfy existing pods anti-affinity rules",))

Places = dict[str, set[str]]  # topology key -> values


@dataclass(frozen=True, slots=True)
class _Resolved:
    """A term of the incoming pod with its namespaces looked up; None is all of them."""

    topology_key: str
    selector: LabelSelector
    namespaces: frozenset[str] | None
    weight: int

    def speaks_of(self, namespace: str, labels: Mapping[str, str]) -> bool:
        inside = self.namespaces is None or namespace in self.namespaces
        return inside and self.selector.matches(labels)


def _resolve(terms: Iterable[Term], cache: Cache) -> list[_Resolved]:
    return [_Resolved(t.topology_key, t.selector, _namespaces(t, cache), t.weight) for t in terms]


def _namespaces(term: Term, cache: Cache) -> frozenset[str] | None:
    chooser = term.namespace_selector
    if chooser.empty:
        return None
    if chooser.nothing:
        return term.namespaces
    chosen = (name for name, labels in cache.namespaces().items() if chooser.matches(labels))
    return term.namespaces.union(chosen)


# Filtering.


@dataclass(frozen=True, slots=True)
class _Rules:
    """Places of which the rules speak.

    Attributes:
        keys: topology keys of the pod's required terms.
        wanted: where a pod is that all of those speak of.
        alone: there is no such pod anywhere, and the pod is of that sort itself: the first of its kind.
        unwanted: where a pod is of which the pod's required anti-affinity speaks.
        closed: where a pod is whose required anti-affinity speaks of this pod.
    """

    keys: tuple[str, ...]
    wanted: Places
    alone: bool
    unwanted: Places
    closed: Places


def _rules(subject: Subject, cache: Cache) -> _Rules | None:
    facts = subject.facts
    terms = facts.terms
    closed = _closed(facts, cache)
    if not closed and not terms.required and not terms.required_anti:
        return None
    required = _resolve(terms.required, cache)
    wanted: Places = {}
    for on in _of_all(required, cache):
        for term in required:
            _add_places(wanted, term.topology_key, on, cache)
    unwanted: Places = {}
    for term in _resolve(terms.required_anti, cache):
        for selection in cache.index.select(term.namespaces, term.selector):
            _add_places(unwanted, term.topology_key, selection.on, cache)
    itself = all(term.speaks_of(facts.namespace, facts.labels) for term in required)
    keys = tuple(term.topology_key for term in required)
    return _Rules(keys, wanted, not wanted and itself, unwanted, closed)


def _closed(facts: PodFacts, cache: Cache) -> Places:
    places: Places = {}
    around = cache.namespace_labels(facts.namespace)
    for holders in cache.index.refusing():
        for term in holders.terms.required_anti:
            if term.matches(facts.namespace, facts.labels, around):
                _add_places(places, term.topology_key, holders.on, cache)
    return places


def _of_all(terms: Sequence[_Resolved], cache: Cache) -> Iterator[Counts]:
    """Where pods are of which every term speaks."""
    if not terms:
        return
    first, *others = terms
    for selection in cache.index.select(first.namespaces, first.selector):
        if not others:
            yield selection.on
            continue
        for group in selection.groups.values():
            if all(term.speaks_of(group.namespace, group.labels) for term in others):
                yield group.on


def _add_places(places: Places, key: str, on: Counts, cache: Cache) -> None:
    for node in on:
        state = cache.get(node)
        if state is not None and (value := state.labels.get(key)) is not None:
            places.setdefault(key, set()).add(value)


def filter_rules(rules: _Rules, state: NodeState) -> Refusal | None:
    """Refuses nodes in places where the pod must not be."""
    labels = state.labels
    if rules.keys:
        values = [(key, labels.get(key)) for key in rules.keys]
        if any(value is None for _, value in values):
            return _AFFINITY
        if not rules.alone and any(value not in rules.wanted.get(key, ()) for key, value in values):
            return _AFFINITY
    if _inside(rules.unwanted, labels):
        return _ANTI
    if _inside(rules.closed, labels):
        return _EXISTING
    return None


def _inside(places: Places, labels: Mapping[str, str]) -> bool:
    return any(labels.get(key) in values for key, values in places.items())


# Scoring.

_Sums = dict[str, dict[str, int]]  # topology key -> value -> sum of weights


def _sums(subject: Subject, cache: Cache, nodes: Sequence[NodeState]) -> _Sums | None:
    facts, index = subject.facts, cache.index
    sums: _Sums = {}
    for sign, terms in ((1, facts.terms.preferred), (-1, facts.terms.preferred_anti)):
        for term in _resolve(terms, cache):
            for selection in index.select(term.namespaces, term.selector):
                _add_sums(sums, term.topology_key, sign * term.weight, selection.on, cache)
    around = cache.namespace_labels(facts.namespace)
    for holders in index.holders():
        own = holders.terms
        weighed = [(held, HARD_AFFINITY_WEIGHT) for held in own.required]
        weighed += [(held, held.weight) for held in own.preferred]
        weighed += [(held, -held.weight) for held in own.preferred_anti]
        for held, weight in weighed:
            if held.matches(facts.namespace, facts.labels, around):
                _add_sums(sums, held.topology_key, weight, holders.on, cache)
    return sums or None


def _add_sums(sums: _Sums, key: str, weight: int, on: Counts, cache: Cache) -> None:
    for node, count in on.items():
        state = cache.get(node)
        if state is not None and (value := state.labels.get(key)) is not None:
            values = sums.setdefault(key, {})
            values[value] = values.get(value, 0) + weight * count


def score_sums(sums: _Sums, state: NodeState) -> int:
    """The weights of all that speaks for a node, less what speaks against it."""
    labels = state.labels
    return sum(values.get(labels.get(key, ""), 0) for key, values in sums.items() if key in labels)


def between_extremes(scores: list[int]) -> list[int]:
    """The lowest becomes 0, the highest 100; all 0 when they are the same."""
    lowest, highest = min(scores), max(scores)
    if lowest == highest:
        return [0] * len(scores)
    span = highest - lowest
    return [int(MAX_SCORE * ((score - lowest) / span)) for score in scores]


# Trying again.


def helps(subject: Subject, change: PodChange, cache: Cache) -> bool:
    """Whether a change of another pod may have opened a place.

    It is now of the sort that the pod must be with; or it no longer is one, or no longer holds a
    term, that kept the pod away.
    """
    old, new = change.old, change.new
    facts = subject.facts
    required = _resolve(facts.terms.required, cache)
    if required:
        before, after = (entry is not None and _speak_of(required, entry) for entry in (old, new))
        # One less matters as well to a pod that may be the first of its kind.
        if before != after and (after or _speak_of(required, facts)):
            return True
    if old is None:
        return False
    anti = _resolve(facts.terms.required_anti, cache)
    if any(_speak_of([term], old) and not (new and _speak_of([term], new)) for term in anti):
        return True
    around = cache.namespace_labels(facts.namespace)
    return new is None and any(
        term.matches(facts.namespace, facts.labels, around) for term in old.terms.required_anti
    )


def _speak_of(terms: Sequence[_Resolved], facts: PodFacts) -> bool:
    return all(term.speaks_of(facts.namespace, facts.labels) for term in terms)


INTERPOD = Plugin(
    "InterPodAffinity",
    pre_filter=_rules,
    filter=filter_rules,
    pre_score=_sums,
    score=score_sums,
    normalize=between_extremes,
    weight=2,
    # With a node its pods are gone too: a pod may now be the first of its kind.
    events=frozenset({Event.NODE, Event.NODE_GONE}),
    helps=helps,
)
