"""How a Deployment's ReplicaSets should be sized and named. Pure arithmetic; no controller itself.

Source: upstream's deployment_util.go and rolling.go.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

from podyard.api import codec
from podyard.api.types import IntOrString, PodTemplateSpec, apps_v1, copy_of

Deployment = apps_v1.Deployment
ReplicaSet = apps_v1.ReplicaSet

REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MAX = "deployment.kubernetes.io/max-replicas"
HASH_LABEL = "pod-template-hash"
_NOT_COPIED = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        REVISION,
        REVISION_HISTORY,
        DESIRED,
        MAX,
        "deprecated.deployment.rollback.to",
    }
)
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


# Sets and templates.


def template_hash(template: PodTemplateSpec, collisions: int) -> str:
    """A name part for a template: the same for the same template, on every host."""
    # JSON, not bytes: a zero that one client writes and another leaves out is the same template.
    data = codec.encode_json(template, "v1", "PodTemplateSpec") + str(collisions).encode()
    number = int.from_bytes(hashlib.sha256(data).digest()[:8], "big")
    return "".join(_ALPHABET[number // 27**place % 27] for place in range(10))


def same_template(one: PodTemplateSpec, other: PodTemplateSpec) -> bool:
    """Whether two templates make the same pods; the hash label does not count."""
    bare = [copy_of(template) for template in (one, other)]
    for template in bare:
        template.metadata.labels.pop(HASH_LABEL, None)
    return codec.same(bare[0], bare[1])


def find_new(deployment: Deployment, sets: Sequence[ReplicaSet]) -> ReplicaSet | None:
    """The set of the present template; the oldest if several have it."""
    matching = [entry for entry in sets if same_template(entry.spec.template, deployment.spec.template)]
    matching.sort(key=lambda entry: (entry.metadata.creationTimestamp.seconds, entry.metadata.name))
    return matching[0] if matching else None


def build_new(deployment: Deployment, old: Sequence[ReplicaSet]) -> ReplicaSet:
    """The set of the present template, not yet created."""
    digest = template_hash(deployment.spec.template, deployment.status.collisionCount)
    made = ReplicaSet()
    made.metadata.name = f"{deployment.metadata.name}-{digest}"
    made.metadata.namespace = deployment.metadata.namespace
    made.metadata.labels.update(deployment.spec.template.metadata.labels)
    made.metadata.labels[HASH_LABEL] = digest
    made.metadata.ownerReferences.add(
        apiVersion="apps/v1",
        kind="Deployment",
        name=deployment.metadata.name,
        uid=deployment.metadata.uid,
        controller=True,
        blockOwnerDeletion=True,
    )
    made.spec.template.CopyFrom(deployment.spec.template)
    made.spec.template.metadata.labels[HASH_LABEL] = digest
    made.spec.selector.CopyFrom(deployment.spec.selector)
    made.spec.selector.matchLabels[HASH_LABEL] = digest
    made.spec.minReadySeconds = deployment.spec.minReadySeconds
    made.spec.replicas = new_replicas(deployment, made, old)
    _copy_annotations(deployment, made)
    made.metadata.annotations[REVISION] = str(next_revision(old))
    set_sizes(deployment, made)
    return made


def annotated(deployment: Deployment, new: ReplicaSet, old: Sequence[ReplicaSet]) -> ReplicaSet | None:
    """The new set with what it should say; None when it says so already."""
    wanted = copy_of(new)
    _copy_annotations(deployment, wanted)
    wanted.spec.minReadySeconds = deployment.spec.minReadySeconds
    revision = next_revision(old)
    known = revision_of(new)
    if known < revision:
        # An older template is in force again: it becomes the newest revision.
        if known:
            history = wanted.metadata.annotations.get(REVISION_HISTORY, "")
            wanted.metadata.annotations[REVISION_HISTORY] = f"{history},{known}" if history else str(known)
        wanted.metadata.annotations[REVISION] = str(revision)
    return None if codec.same(wanted, new) else wanted


def _copy_annotations(deployment: Deployment, entry: ReplicaSet) -> None:
    for name, value in deployment.metadata.annotations.items():
        if name not in _NOT_COPIED:
            entry.metadata.annotations[name] = value


def revision_of(entry: ReplicaSet) -> int:
    """The revision that a set says it is; 0 when it says none."""
    try:
        return int(entry.metadata.annotations.get(REVISION, "0"))
    except ValueError:
        return 0


def next_revision(old: Sequence[ReplicaSet]) -> int:
    """One more than the highest of the old sets."""
    return max((revision_of(entry) for entry in old), default=0) + 1


def set_sizes(deployment: Deployment, entry: ReplicaSet) -> None:
    """Records what the deployment wanted when it sized this set; scaling in mid-rollout needs it."""
    wanted = deployment.spec.replicas
    entry.metadata.annotations[DESIRED] = str(wanted)
    entry.metadata.annotations[MAX] = str(wanted + max_surge(deployment))


# Limits.


def _resolve(value: IntOrString, total: int, *, up: bool) -> int:
    if value.type == 0:
        return value.intVal
    share = total * int(value.strVal.rstrip("%") or 0) / 100
    return math.ceil(share) if up else math.floor(share)


def fenceposts(deployment: Deployment) -> tuple[int, int]:
    """(maxSurge, maxUnavailable) as numbers; not both are 0."""
    rolling = deployment.spec.strategy.rollingUpdate
    total = deployment.spec.replicas
    surge = _resolve(rolling.maxSurge, total, up=True)
    unavailable = _resolve(rolling.maxUnavailable, total, up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, unavailable


def max_surge(deployment: Deployment) -> int:
    """Pods allowed above the wanted number."""
    return fenceposts(deployment)[0] if deployment.spec.strategy.type == "RollingUpdate" else 0


def max_unavailable(deployment: Deployment) -> int:
    """Pods allowed to be missing."""
    if deployment.spec.strategy.type != "RollingUpdate" or not deployment.spec.replicas:
        return 0
    return min(fenceposts(deployment)[1], deployment.spec.replicas)


# Sizes.


def new_replicas(deployment: Deployment, new: ReplicaSet, old: Sequence[ReplicaSet]) -> int:
    """How large the new set may be now."""
    wanted = deployment.spec.replicas
    if deployment.spec.strategy.type == "Recreate":
        return wanted
    if new.spec.replicas >= wanted:
        return wanted
    total = sum(entry.spec.replicas for entry in old) + new.spec.replicas
    room = wanted + max_surge(deployment) - total
    if room <= 0:
        return new.spec.replicas
    return new.spec.replicas + min(room, wanted - new.spec.replicas)


def shrink_old(
    deployment: Deployment, new: ReplicaSet, old: Sequence[ReplicaSet]
) -> list[tuple[ReplicaSet, int]]:
    """Old sets that may shrink now and their sizes: broken pods go first, then what may be missing.

    None may while the counts of one of them are older than its size (upstream: an invalid request to
    scale down): the change of its status comes back here.
    """
    if any(0 < entry.spec.replicas < entry.status.availableReplicas for entry in old):
        return []
    every = [*old, new]
    total = sum(entry.spec.replicas for entry in every)
    minimum = deployment.spec.replicas - max_unavailable(deployment)
    new_unavailable = new.spec.replicas - _lasting(new)
    spare = total - minimum - new_unavailable
    if spare <= 0:
        return []
    sizes = {entry.metadata.uid: entry.spec.replicas for entry in old}
    ordered = sorted(old, key=lambda entry: (entry.metadata.creationTimestamp.seconds, entry.metadata.name))
    cleaned = 0
    for entry in ordered:
        broken = entry.spec.replicas - _lasting(entry)
        count = min(max(spare - cleaned, 0), broken)
        sizes[entry.metadata.uid] -= count
        cleaned += count
    excess = sum(_lasting(entry) for entry in every) - minimum
    for entry in ordered:
        count = min(max(excess, 0), sizes[entry.metadata.uid])
        sizes[entry.metadata.uid] -= count
        excess -= count
    return [
        (entry, sizes[entry.metadata.uid])
        for entry in ordered
        if sizes[entry.metadata.uid] != entry.spec.replicas
    ]


def _lasting(entry: ReplicaSet) -> int:
    """Available pods that stay; those beyond a set's size are about to go, whatever its status says."""
    return min(entry.status.availableReplicas, entry.spec.replicas)


def is_scaling(deployment: Deployment, sets: Sequence[ReplicaSet]) -> bool:
    """Whether the wanted number changed since a set with pods was sized."""
    return any(
        entry.metadata.annotations.get(DESIRED, str(deployment.spec.replicas))
        != str(deployment.spec.replicas)
        for entry in sets
        if entry.spec.replicas > 0
    )


def proportional(
    deployment: Deployment, new: ReplicaSet | None, old: Sequence[ReplicaSet]
) -> list[tuple[ReplicaSet, int]]:
    """Sizes after a change of the wanted number in mid-rollout: each set in proportion to its share."""
    every = [*old, *([new] if new is not None else [])]
    active = [entry for entry in every if entry.spec.replicas > 0]
    wanted = deployment.spec.replicas
    if len(active) <= 1:
        only = active[0] if active else new
        return [] if only is None else [(only, wanted)]
    if new is not None and _is_saturated(new, wanted):
        return [(entry, 0) for entry in old if entry.spec.replicas]
    if deployment.spec.strategy.type != "RollingUpdate":
        return []
    return _shared_out(deployment, active, wanted)


def _is_saturated(new: ReplicaSet, wanted: int) -> bool:
    sized_for = new.metadata.annotations.get(DESIRED, "")
    return new.spec.replicas == wanted == new.status.availableReplicas and sized_for == str(wanted)


def _shared_out(
    deployment: Deployment, active: list[ReplicaSet], wanted: int
) -> list[tuple[ReplicaSet, int]]:
    total = sum(entry.spec.replicas for entry in active)
    allowed = wanted + max_surge(deployment) if wanted > 0 else 0
    left = allowed - total
    growing = left > 0
    # The largest first; of equals the newest when growing, the oldest when shrinking.
    ordered = sorted(
        active,
        key=lambda entry: (
            -entry.spec.replicas,
            (-1 if growing else 1) * entry.metadata.creationTimestamp.seconds,
            entry.metadata.name,
        ),
    )
    sizes: list[tuple[ReplicaSet, int]] = []
    added = 0
    for entry in ordered:
        share = 0
        if left:
            limit = int(entry.metadata.annotations.get(MAX, "0") or 0) or total
            fraction = round(entry.spec.replicas * allowed / limit) - entry.spec.replicas
            remaining = left - added
            share = min(max(fraction, 0), remaining) if growing else max(min(fraction, 0), remaining)
        added += share
        sizes.append((entry, entry.spec.replicas + share))
    if left != added and sizes:
        # What rounding left over goes to the first.
        entry, size = sizes[0]
        sizes[0] = (entry, max(size + left - added, 0))
    return sizes


def is_complete(deployment: Deployment) -> bool:
    """Whether every pod is of the present template and available, and no other is left."""
    status, wanted = deployment.status, deployment.spec.replicas
    return (
        status.updatedReplicas == wanted
        and status.replicas == wanted
        and status.availableReplicas == wanted
        and status.observedGeneration >= deployment.metadata.generation
    )
