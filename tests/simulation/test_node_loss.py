"""A node is lost under a Deployment and comes back: the same story for the same seed, to the millisecond.

Fifty seeds choose the interleaving, the node, and the moment of its loss.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from podyard.api.types import Node, Pod
from podyard.base import clock
from podyard.testing.world import World, run_world
from tests.simulation.hashing import last_lines
from tests.simulation.test_workloads import Deployment, complete, deployment

REPLICAS = 4


@dataclass
class Story:
    """What happened, by cluster time in seconds.

    Attributes:
        silent_s: when the node fell silent.
        unready_s: when its Ready condition was no longer True.
        tainted_s: the time that its NoExecute taint says.
        evicted_s: pod -> when its deletion began.
        placed: pod uid -> the nodes on which it was ever seen.
        pods: name -> its present state.
    """

    node: str = ""
    silent_s: float = 0.0
    unready_s: float = 0.0
    tainted_s: float = 0.0
    victims: frozenset[str] = frozenset()
    evicted_s: dict[str, float] = field(default_factory=dict)
    placed: dict[str, set[str]] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)

    def note(self, now_s: float, type_: str, obj: object) -> None:
        if isinstance(obj, Pod):
            name, uid = obj.metadata.name, obj.metadata.uid
            self.pods[name] = obj
            if type_ == "DELETED":
                del self.pods[name]
            if obj.spec.nodeName:
                self.placed.setdefault(uid, set()).add(obj.spec.nodeName)
            if obj.metadata.HasField("deletionTimestamp"):
                self.evicted_s.setdefault(name, now_s)
        elif isinstance(obj, Node) and obj.metadata.name == self.node and not self.tainted_s:
            if not self.unready_s and not is_ready(obj):
                self.unready_s = now_s
            for taint in obj.spec.taints:
                if taint.effect == "NoExecute":
                    self.tainted_s = float(taint.timeAdded.seconds)

    def replaced(self) -> bool:
        """Whether as many pods as wanted are ready on other nodes."""
        elsewhere = [pod for pod in self.pods.values() if pod.spec.nodeName != self.node]
        return sum(map(is_ready, elsewhere)) == REPLICAS

    def on_lost_node(self) -> set[str]:
        return {name for name, pod in self.pods.items() if pod.spec.nodeName == self.node}


def is_ready(obj: Node | Pod) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in obj.status.conditions)


async def lose_and_get_back(world: World, seed: int) -> Story:
    choose, story = random.Random(seed), Story()
    world.on_change(story.note)
    await world.client.create(deployment(replicas=REPLICAS))
    await world.until_object(Deployment, "web", complete)
    await clock.sleep(choose.uniform(0, 20))
    story.node = choose.choice(sorted(world.runtimes))
    story.victims = frozenset(story.on_lost_node())
    story.silent_s = clock.now_s()
    await world.kill(story.node)
    world.runtimes[story.node].lose_power()
    await world.until(story.replaced, "replacements", timeout_s=400)

    world.restart(story.node)
    await world.until_object(
        Node, story.node, lambda node: not node.spec.taints and is_ready(node), namespace="", timeout_s=60
    )
    await world.until(lambda: not story.on_lost_node(), "the old pods to go")
    await world.until_object(Deployment, "web", complete)
    return story


def tell(seed: int) -> tuple[Story, str]:
    """The story of a seed, and the digest of its whole history."""
    story, history = run_world(seed, lambda world: lose_and_get_back(world, seed), nodes=3)
    return story, history.digest()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 51))
def test_the_same_seed_tells_the_same_story_of_a_lost_node(seed):
    (story, first), (_, second) = tell(seed), tell(seed)
    assert first == second
    assert story.victims, "a deployment is spread over the nodes"
    # The grace counts from the last renewal seen, which was up to ten seconds before.
    assert 39 <= story.unready_s - story.silent_s <= 51
    # 300 s after the time that the taint says: its pods, and only those.
    assert set(story.evicted_s) == story.victims
    for evicted_s in story.evicted_s.values():
        assert evicted_s - story.tainted_s == pytest.approx(300, abs=0.001)
    # Nothing ever moved, and nothing went back.
    assert all(len(nodes) == 1 for nodes in story.placed.values())
    assert len(story.pods) == REPLICAS
    assert not story.on_lost_node()


@pytest.mark.slow
def test_the_story_does_not_depend_on_string_hashing():
    program = "from tests.simulation.test_node_loss import tell\nprint(tell(7)[1])\n"
    assert len(last_lines(program)) == 1
