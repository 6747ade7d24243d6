"""Which pods belong together when a pod does not say so itself: those of its Services and its owner. Pure.

Source: kubernetes pkg/scheduler/framework/plugins/helper/spread.go, `DefaultSelector`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podyard.api import meta, resources, selectors
from podyard.api.selectors import EVERYTHING, LabelSelector
from podyard.api.types import Message, Service, apps_v1, core_v1
from scheduler.pods import Subject

# Kinds whose selector says which pods belong together; those that are not served own none.
_SELECTING: tuple[type[Message], ...] = (
    core_v1.ReplicationController,
    apps_v1.ReplicaSet,
    apps_v1.StatefulSet,
)
OWNERS: tuple[type[Message], ...] = tuple(
    kind for kind in _SELECTING if any(row.message is kind for row in resources.RESOURCES)
)

_Question = tuple[frozenset[tuple[str, str]], str, str, str]
_MEMORY = 1024


class Owners:
    """Selectors of Services and of the pods' owners."""

    def __init__(self) -> None:
        self._services: dict[str, dict[str, Mapping[str, str]]] = {}  # namespace -> name -> selector
        self._owners: dict[tuple[str, str, str, str], LabelSelector] = {}
        self._answers: dict[str, dict[_Question, LabelSelector]] = {}

    def set_service(self, service: Service) -> None:
        """A Service without selector selects nothing."""
        metadata = service.metadata
        of = self._services.setdefault(metadata.namespace, {})
        wanted = dict(service.spec.selector)
        if of.get(metadata.name, {}) != wanted:
            self._answers.pop(metadata.namespace, None)
            of[metadata.name] = wanted

    def remove_service(self, service: Service) -> None:
        metadata = service.metadata
        if self._services.get(metadata.namespace, {}).pop(metadata.name, None):
            self._answers.pop(metadata.namespace, None)

    def set_owner(self, owner: Any) -> None:
        """An object of one of `OWNERS`."""
        key = _key(owner)
        selector = _selector(owner)
        if self._owners.get(key) != selector:
            self._owners[key] = selector
            self._answers.pop(owner.metadata.namespace, None)

    def remove_owner(self, owner: Any) -> None:
        if self._owners.pop(_key(owner), None) is not None:
            self._answers.pop(owner.metadata.namespace, None)

    def selector_for(self, subject: Subject) -> LabelSelector:
        """What selects the pods that belong together with this one; an empty selector when none do."""
        metadata = subject.pod.metadata
        services = self._services.get(metadata.namespace)
        owner = meta.controller_of(metadata)
        if not services and owner is None:
            return EVERYTHING
        named = ("", "", "") if owner is None else (owner.apiVersion, owner.kind, owner.name)
        question = (frozenset(subject.facts.labels.items()), *named)
        answers = self._answers.setdefault(metadata.namespace, {})
        answer = answers.get(question)
        if answer is None:
            if len(answers) >= _MEMORY:
                answers.clear()
            answer = answers[question] = self._answer(metadata.namespace, subject.facts.labels, named)
        return answer

    def _answer(
        self, namespace: str, labels: Mapping[str, str], owner: tuple[str, str, str]
    ) -> LabelSelector:
        wanted: dict[str, str] = {}
        for _, selector in sorted(self._services.get(namespace, {}).items()):
            if selector and all(labels.get(key) == value for key, value in selector.items()):
                wanted |= selector
        own = self._owners.get((namespace, *owner), EVERYTHING)
        together = selectors.from_labels(wanted)
        if own.nothing:
            return together
        terms = dict.fromkeys(together.requirements + own.requirements)
        return LabelSelector(tuple(terms))


def _key(owner: Any) -> tuple[str, str, str, str]:
    row = resources.by_message(type(owner))
    return owner.metadata.namespace, row.api_version, row.kind, owner.metadata.name


def _selector(owner: Any) -> LabelSelector:
    if isinstance(owner, core_v1.ReplicationController):
        return selectors.from_labels(owner.spec.selector)
    return selectors.from_message(owner.spec.selector if owner.spec.HasField("selector") else None)
