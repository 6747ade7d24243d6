"""Random histories against every store, compared step by step with a model that is obviously right."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from apiserver.store.base import Expired, KeyExists, RevisionMismatch, Store, Stored, StoreEvent
from apiserver.store.etcd import EtcdStore
from apiserver.store.memory import MemoryStore

_prefixes = itertools.count()
NAMES = st.sampled_from(["a", "a/x", "a/y", "b", "b/x"])
VALUES = st.sampled_from([b"", b"1", b"2"])
FRACTIONS = st.floats(0, 1)


@dataclass(frozen=True)
class Written:
    """A state of the whole key space: what each key is from this revision on."""

    revision: int
    keys: dict[str, Stored]


class StoreMachine(RuleBasedStateMachine):
    """Rules write, read and compact; each watch is followed to its end at the end."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.store = self.run(_opened(open_store))
        self.prefix = f"/registry/model-{next(_prefixes)}-{id(self)}/"
        self.start = self.run(self.store.current_revision())
        self.states = [Written(self.start, {})]
        self.events: list[StoreEvent] = []
        self.compacted = 0

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    @property
    def keys(self) -> dict[str, Stored]:
        return self.states[-1].keys

    def wrote(self, key: str, value: bytes | None, revision: int) -> None:
        assert revision > self.states[-1].revision
        keys = dict(self.keys)
        previous = keys.pop(key, None)
        if value is not None:
            keys[key] = Stored(key, value, previous.create_revision if previous else revision, revision)
        self.states.append(Written(revision, keys))
        created = keys[key].create_revision if value is not None else 0
        self.events.append(StoreEvent(key, revision, value, previous, created))

    def pick_revision(self, fraction: float) -> int:
        first, last = self.start, self.states[-1].revision
        return first + round((last - first) * fraction)

    def keys_at(self, revision: int) -> dict[str, Stored]:
        return [state for state in self.states if state.revision <= revision][-1].keys

    @rule(name=NAMES, value=VALUES)
    def create(self, name: str, value: bytes) -> None:
        key = self.prefix + name
        current = self.keys.get(key)
        try:
            revision = self.run(self.store.create(key, value))
        except KeyExists as exists:
            assert exists.current == current  # noqa: PT017
        else:
            assert current is None
            self.wrote(key, value, revision)

    @rule(name=NAMES, value=st.one_of(st.none(), VALUES), right=st.booleans(), other=FRACTIONS)
    def change(self, name: str, value: bytes | None, right: bool, other: float) -> None:
        key = self.prefix + name
        current = self.keys.get(key)
        expected = current.mod_revision if right and current else max(1, self.pick_revision(other))
        try:
            if value is None:
                revision = self.run(self.store.delete(key, expected_revision=expected))
            else:
                revision = self.run(self.store.update(key, value, expected_revision=expected))
        except RevisionMismatch as mismatch:
            assert mismatch.current == current  # noqa: PT017
            assert current is None or current.mod_revision != expected
        else:
            assert current is not None
            assert current.mod_revision == expected
            self.wrote(key, value, revision)

    @rule(name=NAMES, fraction=FRACTIONS)
    def get_old(self, name: str, fraction: float) -> None:
        revision = self.pick_revision(fraction)
        try:
            found, _ = self.run(self.store.get(self.prefix + name, revision=revision))
        except Expired:
            assert revision < self.compacted
        else:
            assert revision >= self.compacted
            assert found == self.keys_at(revision).get(self.prefix + name)

    @rule(under=st.sampled_from(["", "a", "a/", "b/"]), limit=st.integers(0, 3), fraction=FRACTIONS)
    def list_pages(self, under: str, limit: int, fraction: float) -> None:
        revision = self.pick_revision(fraction)
        keys = self.keys_at(revision)
        expected = [keys[key] for key in sorted(keys) if key.startswith(self.prefix + under)]
        found: list[Stored] = []
        try:
            while True:
                start_after = found[-1].key if found else ""
                page = self.run(
                    self.store.list(
                        self.prefix + under, start_after=start_after, limit=limit, revision=revision
                    )
                )
                found.extend(page.items)
                assert page.remaining == len(expected) - len(found)
                assert page.more == (page.remaining > 0)
                if not page.more:
                    break
        except Expired:
            assert revision < self.compacted
        else:
            assert found == expected

    @rule(fraction=FRACTIONS)
    def compact(self, fraction: float) -> None:
        revision = self.pick_revision(fraction)
        self.run(self.store.compact(revision))
        self.compacted = max(self.compacted, revision)

    @rule(fraction=FRACTIONS)
    def follow(self, fraction: float) -> None:
        start = self.pick_revision(fraction) + 1
        expected = [event for event in self.events if event.revision >= start]
        try:
            assert self.run(self._collect(start, len(expected))) == expected
        except Expired:
            assert start <= self.compacted
        else:
            assert start > self.compacted or not expected

    async def _collect(self, start: int, count: int) -> list[StoreEvent]:
        found: list[StoreEvent] = []
        async with (
            asyncio.timeout(20),
            aclosing(self.store.watch(self.prefix, start_revision=start)) as watch,
        ):
            while len(found) < count:
                batch = await anext(watch)
                found.extend(batch.events)
        return found

    @invariant()
    def newest_state_is_the_models(self) -> None:
        page = self.run(self.store.list(self.prefix))
        assert {item.key: item for item in page.items} == self.keys
        assert page.revision >= self.states[-1].revision

    def teardown(self) -> None:
        self.run(self.store.close())
        self.runner.close()


async def _opened(open_store: Callable[[], Store]) -> Store:
    return open_store()


@pytest.mark.parametrize("kind", ["memory", "etcd"])
def test_random_histories(kind: str, request: pytest.FixtureRequest) -> None:
    if kind == "memory":
        open_store: Callable[[], Store] = MemoryStore
    else:
        endpoint = request.getfixturevalue("etcd").endpoint
        open_store = lambda: EtcdStore([endpoint])  # noqa: E731
    run_state_machine_as_test(
        lambda: StoreMachine(open_store),
        settings=settings(
            max_examples=60 if kind == "memory" else 25,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
