"""How rollouts size their sets: whatever the sets' statuses say, enough pods are kept."""

from __future__ import annotations

import random

import pytest

from controller_manager import rollout
from podyard.api.types import apps_v1

Deployment = apps_v1.Deployment
ReplicaSet = apps_v1.ReplicaSet


def deployment(replicas: int, *, surge: int = 1, unavailable: int = 1) -> Deployment:
    made = Deployment(spec={"replicas": replicas, "strategy": {"type": "RollingUpdate"}})
    made.spec.strategy.rollingUpdate.maxSurge.intVal = surge
    made.spec.strategy.rollingUpdate.maxUnavailable.intVal = unavailable
    return made


def sized(name: str, replicas: int, available: int, *, sized_for: int | None = None) -> ReplicaSet:
    made = ReplicaSet(
        metadata={"name": name, "uid": name},
        spec={"replicas": replicas},
        status={"replicas": max(replicas, available), "availableReplicas": available},
    )
    made.metadata.creationTimestamp.seconds = int(name.strip("abcdefghijklmnopqrstuvwxyz") or 0)
    if sized_for is not None:
        made.metadata.annotations[rollout.DESIRED] = str(sized_for)
    return made


def shrunk(wanted: Deployment, new: ReplicaSet, *old: ReplicaSet) -> dict[str, int]:
    return {entry.metadata.name: size for entry, size in rollout.shrink_old(wanted, new, list(old))}


@pytest.mark.parametrize(
    ("new", "old", "sizes"),
    [
        # The scale-down has been written, its pods are still counted: not yet.
        (sized("new", 1, 0), [sized("old1", 3, 9)], {}),
        # They are gone: all but the one that must be there.
        (sized("new", 1, 0), [sized("old1", 3, 3)], {"old1": 1}),
        (sized("new", 2, 0), [sized("old1", 1, 1)], {}),
        # One old set that is behind holds back the others, too.
        (sized("new", 1, 0), [sized("old1", 2, 2), sized("old2", 1, 4)], {}),
        # What is left of a set that is to have none keeps nobody's place.
        (sized("new", 1, 0), [sized("old1", 0, 9), sized("old2", 3, 3)], {"old2": 1}),
        # A new set that was made smaller has not as many as it says.
        (sized("new", 1, 8), [sized("old1", 2, 2)], {"old1": 0}),
        (sized("new", 0, 8), [sized("old1", 2, 2)], {"old1": 1}),
        # Broken ones go first, and only as many as there are.
        (sized("new", 1, 0), [sized("old1", 2, 0), sized("old2", 2, 2)], {"old1": 0, "old2": 1}),
    ],
)
def test_old_sets_shrink_by_the_pods_that_stay(new, old, sizes):
    assert shrunk(deployment(2, surge=2), new, *old) == sizes


@pytest.mark.parametrize("seed", range(300))
def test_no_step_takes_available_pods_below_the_minimum(seed):
    """Sizes and counts at random, also counts that are older than the sizes."""
    dice = random.Random(seed)
    wanted = deployment(dice.randint(1, 10), surge=dice.randint(0, 3), unavailable=dice.randint(0, 3))
    sets = [sized(f"s{number}", dice.randint(0, 8), dice.randint(0, 10)) for number in range(3)]
    minimum = wanted.spec.replicas - rollout.max_unavailable(wanted)
    sizes = shrunk(wanted, sets[0], *sets[1:])

    def staying(entry: ReplicaSet, size: int) -> int:
        """A set deletes its broken pods before the available ones."""
        return min(size, entry.spec.replicas, entry.status.availableReplicas)

    before = sum(staying(entry, entry.spec.replicas) for entry in sets)
    after = sum(staying(entry, sizes.get(entry.metadata.name, entry.spec.replicas)) for entry in sets)
    assert after >= min(before, minimum)
    assert all(size >= 0 for size in sizes.values())


def test_a_new_set_of_the_right_size_is_done_only_when_it_was_sized_for_it():
    wanted = deployment(4, surge=1)
    old = sized("old1", 4, 4, sized_for=8)
    old.metadata.annotations[rollout.MAX] = "9"
    done = sized("new", 4, 4, sized_for=4)
    assert [size for _, size in rollout.proportional(wanted, done, [old])] == [0]
    before = sized("new", 4, 4, sized_for=8)
    before.metadata.annotations[rollout.MAX] = "9"
    sizes = {entry.metadata.name: size for entry, size in rollout.proportional(wanted, before, [old])}
    assert sum(sizes.values()) == 5
    assert sizes["old1"] > 0
