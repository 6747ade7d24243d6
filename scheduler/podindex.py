"""Where pods are, by what other pods' rules ask of them; kept up to date step by step. Pure.

Pods of a namespace with the same labels are one *group*, pods with the same (anti-)affinity terms
one group of *holders*; what a selector has been asked for is a *selection*. Each counts its pods by
node, and each pod that comes or goes is counted at once in all that it belongs to. So a rule looks
at counts instead of at all pods of all nodes, whether replicas share their labels or, as those of a
StatefulSet, have some of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from podyard.api.selectors import LabelSelector
from scheduler.pods import PodFacts, Terms

Counts = dict[str, int]  # node -> how many pods
LabelSet = frozenset[tuple[str, str]]
_At = TypeVar("_At")

# Selections kept for each namespace.
_MEMORY = 256


class Selection:
    """The pods of a namespace that a selector chooses.

    Attributes:
        groups: those whose labels are selected.
        on: how many pods there are, by node.
        staying: the same, without those that are being deleted.
    """

    __slots__ = ("groups", "on", "staying")

    def __init__(self) -> None:
        self.groups: dict[LabelSet, Group] = {}
        self.on: Counts = {}
        self.staying: Counts = {}


class Group:
    """Pods of one namespace with the same labels; counted as a selection is."""

    __slots__ = ("labels", "namespace", "on", "selections", "staying")

    def __init__(self, namespace: str, labels: Mapping[str, str]) -> None:
        self.namespace = namespace
        self.labels = labels
        self.on: Counts = {}
        self.staying: Counts = {}
        self.selections: list[Selection] = []


class Holders:
    """Pods of one namespace with the same terms, by node."""

    __slots__ = ("namespace", "on", "terms")

    def __init__(self, namespace: str, terms: Terms) -> None:
        self.namespace = namespace
        self.terms = terms
        self.on: Counts = {}


class PodIndex:
    """See the module."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[LabelSet, Group]] = {}
        self._by_label: dict[tuple[str, str, str], dict[LabelSet, Group]] = {}
        self._holders: dict[tuple[str, bytes], Holders] = {}
        self._refusing: dict[tuple[str, bytes], Holders] = {}
        self._selections: dict[str, dict[LabelSelector, Selection]] = {}

    # Asking.

    def holders(self) -> Iterator[Holders]:
        """Groups of pods that have terms of any sort."""
        return iter(self._holders.values())

    def refusing(self) -> Iterator[Holders]:
        """Groups of pods that require not to be with others."""
        return iter(self._refusing.values())

    def select(self, namespaces: Iterable[str] | None, selector: LabelSelector) -> Iterator[Selection]:
        """What is selected in each namespace.

        Args:
            namespaces: None for all.
        """
        for namespace in list(self._groups) if namespaces is None else namespaces:
            yield self._select(namespace, selector)

    def staying(self, namespace: str, selector: LabelSelector) -> Counts:
        """How many of the selected pods are on each node, without those being deleted; not to be changed."""
        return self._select(namespace, selector).staying

    def _select(self, namespace: str, selector: LabelSelector) -> Selection:
        known = self._selections.setdefault(namespace, {})
        found = known.get(selector)
        if found is None:
            if len(known) >= _MEMORY:
                known.clear()
                for group in self._groups.get(namespace, {}).values():
                    group.selections.clear()
            found = known[selector] = Selection()
            for key, group in self._candidates(namespace, selector).items():
                if selector.matches(group.labels):
                    found.groups[key] = group
                    group.selections.append(found)
                    _sum(found.on, group.on)
                    _sum(found.staying, group.staying)
        return found

    def _candidates(self, namespace: str, selector: LabelSelector) -> Mapping[LabelSet, Group]:
        """The fewest groups that must hold all that are selected."""
        if selector.nothing:
            return {}
        fewest: Mapping[LabelSet, Group] = self._groups.get(namespace, {})
        for term in selector.requirements:
            if term.operator in ("=", "in") and len(term.values) == 1:
                fitting = self._by_label.get((namespace, term.key, term.values[0]), {})
                fewest = min(fewest, fitting, key=len)
        return fewest

    # Changing.

    def add(self, facts: PodFacts, node: str) -> None:
        """One more pod on a node."""
        group = self._group(facts)
        self._change(group, node, 1, facts.ending)
        key = facts.terms_key
        if key is None:
            return
        holders = self._holders.get(key)
        if holders is None:
            holders = self._holders[key] = Holders(facts.namespace, facts.terms)
            if facts.terms.required_anti:
                self._refusing[key] = holders
        _count(holders.on, node, 1)

    def remove(self, facts: PodFacts, node: str) -> None:
        """One pod less on a node; with the facts with which it was added."""
        group = self._group(facts)
        self._change(group, node, -1, facts.ending)
        if not group.on:
            self._drop(group)
        if facts.terms_key is not None:
            holders = self._holders[facts.terms_key]
            _count(holders.on, node, -1)
            if not holders.on:
                del self._holders[facts.terms_key]
                self._refusing.pop(facts.terms_key, None)

    def _change(self, group: Group, node: str, change: int, ending: bool) -> None:
        counting: list[Group | Selection] = [group, *group.selections]
        for counted in counting:
            _count(counted.on, node, change)
            if not ending:
                _count(counted.staying, node, change)

    def _group(self, facts: PodFacts) -> Group:
        key = frozenset(facts.labels.items())
        groups = self._groups.setdefault(facts.namespace, {})
        group = groups.get(key)
        if group is None:
            group = groups[key] = Group(facts.namespace, facts.labels)
            for label, value in facts.labels.items():
                self._by_label.setdefault((facts.namespace, label, value), {})[key] = group
            for selector, selection in self._selections.get(facts.namespace, {}).items():
                if selector.matches(facts.labels):
                    selection.groups[key] = group
                    group.selections.append(selection)
        return group

    def _drop(self, group: Group) -> None:
        key = frozenset(group.labels.items())
        _remove(self._groups, group.namespace, key)
        for label, value in group.labels.items():
            _remove(self._by_label, (group.namespace, label, value), key)
        for selection in group.selections:
            del selection.groups[key]
        if group.namespace not in self._groups:
            self._selections.pop(group.namespace, None)


def _count(counts: Counts, node: str, change: int) -> None:
    left = counts.get(node, 0) + change
    assert left >= 0, f"more pods left {node} than came"
    if left:
        counts[node] = left
    else:
        counts.pop(node, None)


def _sum(totals: Counts, counts: Counts) -> None:
    for node, count in counts.items():
        totals[node] = totals.get(node, 0) + count


def _remove(index: dict[_At, dict[LabelSet, Group]], at: _At, key: LabelSet) -> None:
    del index[at][key]
    if not index[at]:
        del index[at]
