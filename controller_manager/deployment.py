"""Deployments: rolling updates, history, scaling, pausing, progress.

One step a reconcile, as upstream: make the new ReplicaSet, grow it, shrink the old ones, clean up,
report. What the sets should be stands in `rollout`; here it becomes actions.

Source: upstream's deployment controller (sync.go, rolling.go, recreate.go, progress.go).
"""

from __future__ import annotations

from typing import Any

from controller_manager import deployment_status as progress
from controller_manager import rollout
from controller_manager.podstate import is_active, keys_selecting, owner_reference
from controller_manager.rollout import REVISION, ReplicaSet
from podyard.api import codec, meta, selectors
from podyard.api.quoting import go_quote
from podyard.api.types import Key, Pod, apps_v1, copy_of
from podyard.control.actions import (
    Action,
    Actions,
    Announced,
    Create,
    Delete,
    Emit,
    Patch,
    RequeueAfter,
    Update,
)
from podyard.control.spec import ControllerSpec
from podyard.control.view import View

Deployment = apps_v1.Deployment


def reconcile(view: View, key: Key) -> Actions:
    """One step of a Deployment.

    Returns:
        At most a few writes of ReplicaSets, then one status Update, and a RequeueAfter while a
        progress deadline runs.
    """
    deployment = view.get(Deployment, key)
    if deployment is None:
        return []
    sets, actions = _claim(view, deployment)
    if actions:
        return actions  # adopted sets count once the adoption has been seen
    if deployment.metadata.HasField("deletionTimestamp"):
        return _report(deployment, sets, None, view.now_s)
    new = rollout.find_new(deployment, sets)
    old = [entry for entry in sets if new is None or entry.metadata.uid != new.metadata.uid]
    steps: list[Action] | None
    if deployment.spec.paused or rollout.is_scaling(deployment, sets):
        steps = _scale(deployment, new, old)
    elif deployment.spec.strategy.type == "Recreate":
        steps = _recreate(view, deployment, new, old)
    else:
        steps = _roll(deployment, new, old)
    if steps is None:
        return _new_set(view, deployment, sets)
    if not steps and rollout.is_complete(deployment):
        steps = _clean_up(deployment, old)
    return [*steps, *_report(deployment, sets, new, view.now_s)]


def _claim(view: View, deployment: Deployment) -> tuple[list[ReplicaSet], list[Action]]:
    selector = selectors.from_message(deployment.spec.selector)
    own: list[ReplicaSet] = []
    actions: list[Action] = []
    for entry in view.list(ReplicaSet, deployment.metadata.namespace):
        controller = meta.controller_of(entry.metadata)
        matches = selector.matches(entry.metadata.labels)
        key = Key(entry.metadata.namespace, entry.metadata.name)
        if controller is not None and controller.uid == deployment.metadata.uid:
            if matches:
                own.append(entry)
                continue
            reference = {"$patch": "delete", "uid": deployment.metadata.uid}
        elif controller is None and matches and not deployment.metadata.HasField("deletionTimestamp"):
            reference = owner_reference(deployment, "apps/v1", "Deployment")
        else:
            continue
        body = {"metadata": {"uid": entry.metadata.uid, "ownerReferences": [reference]}}
        actions.append(Patch(ReplicaSet, key, body, patch_type="application/strategic-merge-patch+json"))
    return own, actions


# Steps.


def _new_set(view: View, deployment: Deployment, old: list[ReplicaSet]) -> list[Action]:
    """Creates the set of the present template, with as many pods as may start.

    A name that is taken is another's, or of another template: the next hash counts one collision more.
    """
    made = rollout.build_new(deployment, old)
    name = made.metadata.name
    if view.get(ReplicaSet, Key(made.metadata.namespace, name)) is not None:
        bumped = copy_of(deployment)
        bumped.status.collisionCount += 1
        return [Update(bumped, subresource="status", reason=f"the name {name} is taken")]

    def refused(error: str) -> Update | None:
        text = f"Failed to create new replica set {go_quote(name)}: {error}"
        changed = progress.refused(deployment, text, view.now_s)
        return Update(changed, subresource="status") if changed is not None else None

    announced = Announced(
        deployment,
        "ScalingReplicaSet" if made.spec.replicas else "",
        f"Scaled up replica set {name} from 0 to {made.spec.replicas}",
        progress.CREATE_ERROR,
        'Failed to create new replica set "{name}": {error}',
    )
    create = Create(made, reason=f"new replica set {name}", announced=announced, if_refused=refused)
    return [create, *_report(deployment, [*old, made], made, view.now_s, created=True)]


def _sync_new(deployment: Deployment, new: ReplicaSet, old: list[ReplicaSet]) -> list[Action]:
    """Brings the new set's annotations up to date."""
    wanted = rollout.annotated(deployment, new, old)
    return [Update(wanted)] if wanted is not None else []


def _roll(deployment: Deployment, new: ReplicaSet | None, old: list[ReplicaSet]) -> list[Action] | None:
    """The next writes; None when the new set must be made first."""
    if new is None:
        return None
    synced = _sync_new(deployment, new, old)
    if synced:
        return synced
    target = rollout.new_replicas(deployment, new, old)
    if target != new.spec.replicas:
        return _resize(deployment, new, target)
    actions: list[Action] = []
    for entry, count in rollout.shrink_old(deployment, new, old):
        actions += _resize(deployment, entry, count)
    return actions


def _recreate(
    view: View, deployment: Deployment, new: ReplicaSet | None, old: list[ReplicaSet]
) -> list[Action] | None:
    """As `_roll`."""
    actions: list[Action] = []
    for entry in old:
        if entry.spec.replicas:
            actions += _resize(deployment, entry, 0)
    if actions:
        return actions
    if any(_has_pods(view, entry) for entry in old):
        return []
    if new is None:
        return None
    synced = _sync_new(deployment, new, old)
    if synced:
        return synced
    return (
        _resize(deployment, new, deployment.spec.replicas)
        if new.spec.replicas != deployment.spec.replicas
        else []
    )


def _has_pods(view: View, entry: ReplicaSet) -> bool:
    return any(pod.status.phase not in ("Succeeded", "Failed") for pod in view.owned(Pod, entry.metadata.uid))


def _scale(deployment: Deployment, new: ReplicaSet | None, old: list[ReplicaSet]) -> list[Action]:
    """Paused, or the wanted number changed in mid-rollout: every set keeps its share."""
    actions: list[Action] = []
    for entry, count in rollout.proportional(deployment, new, old):
        actions += _resize(deployment, entry, count)
    return actions or (_sync_new(deployment, new, old) if new is not None else [])


def _resize(deployment: Deployment, entry: ReplicaSet, count: int) -> list[Action]:
    wanted = copy_of(entry)
    wanted.spec.replicas = count
    rollout.set_sizes(deployment, wanted)
    if codec.same(wanted, entry):
        return []
    events = (
        _scaled_event(deployment, entry, entry.spec.replicas, count) if count != entry.spec.replicas else []
    )
    return [Update(wanted), *events]


def _scaled_event(deployment: Deployment, entry: ReplicaSet, before: int, after: int) -> list[Action]:
    verb = "up" if after > before else "down"
    text = f"Scaled {verb} replica set {entry.metadata.name} from {before} to {after}"
    return [Emit(deployment, "Normal", "ScalingReplicaSet", text)]


def _clean_up(deployment: Deployment, old: list[ReplicaSet]) -> list[Action]:
    """Old sets beyond the history limit go, the oldest first."""
    limit = deployment.spec.revisionHistoryLimit if deployment.spec.HasField("revisionHistoryLimit") else 10
    idle = [
        entry
        for entry in old
        if not entry.spec.replicas
        and not entry.status.replicas
        and not entry.metadata.HasField("deletionTimestamp")
        and entry.metadata.generation <= entry.status.observedGeneration
    ]
    idle.sort(key=lambda entry: (rollout.revision_of(entry), entry.metadata.name))
    return [
        Delete(
            ReplicaSet,
            Key(entry.metadata.namespace, entry.metadata.name),
            entry.metadata.uid,
            reason="history",
        )
        for entry in idle[: max(len(idle) - limit, 0)]
    ]


def _report(
    deployment: Deployment,
    sets: list[ReplicaSet],
    new: ReplicaSet | None,
    now_s: float,
    *,
    created: bool = False,
) -> list[Action]:
    status = progress.deployment_status(deployment, sets, new, now_s, created=created)
    actions: list[Action] = []
    wanted = copy_of(deployment)
    wanted.status.CopyFrom(status)
    if new is not None:
        # With the status, so that noting the revision is no new generation.
        wanted.metadata.annotations[REVISION] = new.metadata.annotations.get(REVISION, "")
    if not codec.same(wanted, deployment):
        actions.append(Update(wanted, subresource="status"))
    due_s = progress.deadline_s(deployment, status)
    if due_s is not None and due_s > now_s:
        actions.append(RequeueAfter(due_s - now_s + 1))
    return actions


def _keys_of_pod(old: Any, new: Any, view: View) -> list[Key]:
    """A Recreate deployment waits for its old pods to go."""
    pod = new if new is not None else old
    if new is not None and is_active(pod):
        return []
    controller = meta.controller_of(pod.metadata)
    if controller is None or controller.kind != "ReplicaSet":
        return []
    owner = view.get(ReplicaSet, Key(pod.metadata.namespace, controller.name))
    above = meta.controller_of(owner.metadata) if owner is not None else None
    return (
        [Key(pod.metadata.namespace, above.name)] if above is not None and above.kind == "Deployment" else []
    )


def _keys_of_set(old: Any, new: Any, view: View) -> list[Key]:
    """An orphan set may be someone's."""
    return keys_selecting(new if new is not None else old, Deployment, view)


DEPLOYMENT = ControllerSpec(
    name="deployment",
    for_=Deployment,
    owns=(ReplicaSet,),
    maps={Pod: _keys_of_pod, ReplicaSet: _keys_of_set},
    reconcile=reconcile,
    reporter="deployment-controller",
    workers=5,
)
