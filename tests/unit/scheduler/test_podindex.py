"""The cache's indexes, after any steps, equal a plain count over the pods that are there."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from podyard.api import selectors
from podyard.api.types import LabelSelector, Pod
from scheduler.cache import Cache
from scheduler.pods import facts_of
from tests.unit.scheduler import worlds
from tests.unit.scheduler.builders import node, pod

NODES = ("n1", "n2", "n3")
SELECTORS = [
    LabelSelector(),
    LabelSelector(matchLabels={"app": "web"}),
    LabelSelector(matchLabels={"app": "web", "tier": "a"}),
    LabelSelector(matchExpressions=[{"key": "app", "operator": "In", "values": ["db"]}]),
    LabelSelector(matchExpressions=[{"key": "app", "operator": "NotIn", "values": ["db"]}]),
    LabelSelector(matchExpressions=[{"key": "tier", "operator": "DoesNotExist"}]),
]
uids = st.sampled_from("abcd")
places = st.sampled_from(NODES)


class CacheMachine(RuleBasedStateMachine):
    """Pods and nodes come, change and go in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache()
        self.there: dict[str, Pod] = {}  # uid -> pod with its node
        self.assumed: set[str] = set()
        self.nodes: dict[str, tuple[str, ...]] = {}  # name -> images

    @rule(uid=uids, made=worlds.incoming(), where=places, cpu=st.sampled_from(["", "1", "2"]))
    def see(self, uid, made, where, cpu):
        """The watch shows a pod on a node, new or changed."""
        self.cache.set_pod(self._pod(uid, made, where, cpu))
        self.there[uid] = self._pod(uid, made, where, cpu)
        self.assumed.discard(uid)

    @rule(uid=uids, made=worlds.incoming(), where=places)
    def assume(self, uid, made, where):
        if uid in self.there:
            return
        taken = self._pod(uid, made, where, "1")
        self.cache.assume(uid, facts_of(taken), where)
        self.there[uid] = taken
        self.assumed.add(uid)

    @rule(uid=uids)
    def confirm(self, uid):
        if uid in self.assumed:
            self.cache.set_pod(self.there[uid])
            self.assumed.discard(uid)

    @rule(uid=uids)
    def forget(self, uid):
        gone = self.cache.forget(uid)
        assert (gone is not None) == (uid in self.assumed)
        if uid in self.assumed:
            self.assumed.discard(uid)
            del self.there[uid]

    @rule(uid=uids)
    def remove(self, uid):
        self.cache.remove_pod(uid)
        self.assumed.discard(uid)
        self.there.pop(uid, None)

    @rule(name=places, images=st.lists(st.sampled_from(["x:1", "y:1"]), unique=True))
    def set_node(self, name, images):
        self.cache.set_node(node(name, images=[(image, 1) for image in images]))
        self.nodes[name] = tuple(images)

    @rule(name=places)
    def remove_node(self, name):
        self.cache.remove_node(name)
        self.nodes.pop(name, None)

    @staticmethod
    def _pod(uid: str, made: Pod, where: str, cpu: str) -> Pod:
        found = pod(uid, cpu=cpu, namespace=made.metadata.namespace, labels=dict(made.metadata.labels))
        found.spec.MergeFrom(made.spec)
        found.spec.nodeName = where
        return found

    @invariant()
    def groups_hold_what_is_selected(self):
        for chooser in SELECTORS:
            selector = selectors.from_message(chooser)
            counted = {
                namespace: Counter(
                    entry.spec.nodeName
                    for entry in self.there.values()
                    if entry.metadata.namespace == namespace and selector.matches(entry.metadata.labels)
                )
                for namespace in worlds.NAMESPACES
            }
            for namespace, expected in counted.items():
                assert self.cache.index.staying(namespace, selector) == expected
            everywhere: Counter[str] = Counter()
            for selection in self.cache.index.select(None, selector):
                everywhere.update(selection.on)
                grouped = Counter()
                for group in selection.groups.values():
                    assert selector.matches(group.labels)
                    grouped.update(group.on)
                assert grouped == selection.on
            assert everywhere == sum(counted.values(), Counter())

    @invariant()
    def holders_hold_all_terms(self):
        terms = [facts_of(entry).terms for entry in self.there.values()]
        held = {id(holders): sum(holders.on.values()) for holders in self.cache.index.holders()}
        assert sum(held.values()) == sum(1 for own in terms if own)
        refusing = sum(sum(holders.on.values()) for holders in self.cache.index.refusing())
        assert refusing == sum(1 for own in terms if own.required_anti)

    @invariant()
    def nodes_count_their_own(self):
        assert [state.name for state in self.cache.nodes()] == sorted(self.nodes)
        assert self.cache.images == Counter(image for images in self.nodes.values() for image in images)
        for state in self.cache.nodes():
            mine = {uid: entry for uid, entry in self.there.items() if entry.spec.nodeName == state.name}
            assert set(state.pods) == set(mine)
            cpu = sum(facts_of(entry).needs.requests.get("cpu", 0) for entry in mine.values())
            assert state.requested.get("cpu", 0) == cpu

    def teardown(self):
        """Nothing is left of what is gone."""
        for uid in list(self.there):
            self.remove(uid)
        assert not list(self.cache.index.select(None, selectors.EVERYTHING))
        for chooser in SELECTORS:
            for namespace in worlds.NAMESPACES:
                (left,) = self.cache.index.select([namespace], selectors.from_message(chooser))
                assert not left.groups
                assert not left.on
        assert not list(self.cache.index.holders())


def test_more_selectors_than_are_kept_answer_all_the_same():
    cache = Cache()
    for number in range(600):
        cache.set_pod(pod(f"p{number}", labels={"n": str(number % 300)}, nodeName="n1"))
        wanted = selectors.from_labels({"n": str(number % 300)})
        assert cache.index.staying("default", wanted) == {"n1": 1 + number // 300}


CacheMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=20, deadline=None)
TestCacheMachine = CacheMachine.TestCase
