"""What a Deployment does when its new set can't be made as it would like, and what it says of it."""

from __future__ import annotations

from typing import Any

import pytest

from controller_manager import deployment, rollout
from controller_manager.deployment_status import NO_DEADLINE_S
from podyard.api import meta
from podyard.api.types import Key, Pod, apps_v1, copy_of
from podyard.control.actions import Create, Emit, Update
from podyard.control.view import View
from tests.unit.controllers.test_controllers import NOW_S, Lister

Deployment = apps_v1.Deployment
ReplicaSet = apps_v1.ReplicaSet
KEY = Key("default", "web")


def wanted(strategy: str = "RollingUpdate", *, image: str = "nginx:1", replicas: int = 3) -> Deployment:
    labels = {"app": "web"}
    made = Deployment(
        metadata={"name": "web", "namespace": "default", "uid": "d", "generation": 1},
        spec={
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": image}]},
            },
            "strategy": {"type": strategy},
            "progressDeadlineSeconds": 600,
        },
    )
    made.spec.strategy.rollingUpdate.maxSurge.intVal = 1
    return made


def decided(obj: Deployment, *sets: ReplicaSet) -> list[Any]:
    view = View({Deployment: Lister([obj]), ReplicaSet: Lister(sets), Pod: Lister([])}, NOW_S)
    return deployment.reconcile(view, KEY)


def progressing(obj: Deployment) -> tuple[str, str, str]:
    condition = meta.condition(obj.status.conditions, "Progressing")
    assert condition is not None
    return condition.status, condition.reason, condition.message


def of_another(made: ReplicaSet) -> None:
    made.metadata.ownerReferences[0].uid = "another"


def of_nobody_and_other_labels(made: ReplicaSet) -> None:
    del made.metadata.ownerReferences[:]
    made.metadata.labels.clear()


def of_another_template(made: ReplicaSet) -> None:
    made.spec.template.spec.containers[0].image = "other"


@pytest.mark.parametrize("strategy", ["RollingUpdate", "Recreate"])
@pytest.mark.parametrize("taken", [of_another, of_nobody_and_other_labels, of_another_template])
def test_a_taken_name_counts_as_a_collision_and_leads_to_another_name(strategy, taken):
    obj = wanted(strategy)
    foreign = rollout.build_new(obj, [])
    foreign.metadata.uid = "foreign"
    foreign.spec.replicas = 0
    taken(foreign)
    (bump,) = decided(obj, foreign)
    assert isinstance(bump, Update)
    assert (bump.subresource, bump.obj.status.collisionCount) == ("status", 1)
    assert list(bump.obj.status.conditions) == []
    create, *rest = decided(bump.obj, foreign)
    assert isinstance(create, Create)
    assert create.obj.metadata.name != foreign.metadata.name
    assert create.obj.metadata.name.startswith("web-")
    (status,) = [action.obj for action in rest if isinstance(action, Update)]
    assert status.status.collisionCount == 1
    (again,) = decided(bump.obj, foreign, create.obj)[:1]
    assert not isinstance(again, Create)


def test_a_set_that_is_made_is_named_in_status_and_event():
    create, *rest = decided(wanted())
    name = create.obj.metadata.name
    assert create.announced.message.format(name=name) == f"Scaled up replica set {name} from 0 to 3"
    assert not [action for action in rest if isinstance(action, Emit)]
    (update,) = [action for action in rest if isinstance(action, Update)]
    assert progressing(update.obj) == ("True", "NewReplicaSetCreated", f'Created new replica set "{name}"')
    assert update.obj.metadata.annotations[rollout.REVISION] == "1"
    assert update.obj.status.unavailableReplicas == 3


def test_a_set_without_pods_is_not_worth_an_event():
    create, *_ = decided(wanted(replicas=0))
    assert create.announced.reason == ""


def test_a_refused_set_is_said_in_the_condition_once():
    obj = wanted()
    create, *_ = decided(obj)
    name = create.obj.metadata.name
    text = f'Failed to create new replica set "{name}": too long'
    assert create.announced.failed_reason == "ReplicaSetCreateError"
    assert create.announced.failed_message.format(name=name, error="too long") == text
    update = create.if_refused("too long")
    assert update.subresource == "status"
    assert progressing(update.obj) == ("False", "ReplicaSetCreateError", text)
    again, *_ = decided(update.obj)
    assert again.if_refused("too long") is None
    # Once it can be made, the condition says so.
    mended = next(action.obj for action in decided(update.obj) if isinstance(action, Update))
    assert progressing(mended)[:2] == ("True", "NewReplicaSetCreated")


def test_without_a_deadline_there_is_no_progress_to_tell():
    obj = wanted()
    obj.spec.progressDeadlineSeconds = NO_DEADLINE_S
    create, *rest = decided(obj)
    assert create.if_refused("too long") is None
    (update,) = [action for action in rest if isinstance(action, Update)]
    assert meta.condition(update.obj.status.conditions, "Progressing") is None


def reported(obj: Deployment, *sets: ReplicaSet) -> Deployment:
    return next((a.obj for a in decided(obj, *sets) if isinstance(a, Update) and a.subresource), obj)


def test_progress_is_told_from_creation_to_completion_and_scaling_is_none():
    obj = wanted()
    create, *_ = decided(obj)
    made, obj = create.obj, reported(obj)
    made.metadata.uid = "rs"
    assert progressing(reported(obj, made))[1] == "NewReplicaSetCreated"
    made.status.replicas = made.status.readyReplicas = 3
    obj = reported(obj, made)
    assert progressing(obj)[1:] == (
        "ReplicaSetUpdated",
        f'ReplicaSet "{made.metadata.name}" is progressing.',
    )
    made.status.availableReplicas = 3
    obj = reported(obj, made)
    done = (
        "True",
        "NewReplicaSetAvailable",
        f'ReplicaSet "{made.metadata.name}" has successfully progressed.',
    )
    assert progressing(obj) == done
    obj.spec.replicas = made.spec.replicas = 5
    rollout.set_sizes(obj, made)
    made.status.replicas = 5
    assert progressing(reported(obj, made)) == done


def test_a_set_that_was_there_before_anyone_cared_for_progress_is_found():
    obj = wanted()
    create, *_ = decided(obj)
    made = create.obj
    made.metadata.uid = "rs"
    assert progressing(reported(obj, made)) == (
        "True",
        "FoundNewReplicaSet",
        f'Found new replica set "{made.metadata.name}"',
    )


def test_a_rollout_out_of_time_is_said_so_and_the_transition_is_kept():
    obj = wanted()
    create, *_ = decided(obj)
    made = create.obj
    made.metadata.uid = "rs"
    obj = reported(obj)
    late = copy_of(obj)
    condition = meta.condition(late.status.conditions, "Progressing")
    condition.lastUpdateTime.seconds = int(NOW_S) - 601
    late = reported(late, made)
    assert progressing(late) == (
        "False",
        "ProgressDeadlineExceeded",
        f'ReplicaSet "{made.metadata.name}" has timed out progressing.',
    )
    assert reported(late, made) is late
