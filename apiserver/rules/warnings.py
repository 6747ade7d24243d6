"""What an answer warns of, though the request was carried out.

Counterpart: WarningsOnCreate and WarningsOnUpdate of kubernetes pkg/registry/*/strategy.go, and
apiserver endpoints/handlers/rest.go for owner references.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podyard.api import codec, pod_warnings
from podyard.api.types import Message, ObjectMeta, Pod, apps_v1, batch_v1, core_v1

_NAMED = "Pod names and hostnames"
_DUPLICATES = (
    "API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; "
    "please fix your requests; duplicate UID(s) observed"
)
_START = ".metadata.ownerReferences contains duplicate entries"

# Path of the template of pods, and whether the name goes into those of pods.
_TEMPLATES: Mapping[type[Message], tuple[str, bool]] = {
    apps_v1.DaemonSet: ("spec.template", False),
    apps_v1.Deployment: ("spec.template", True),
    apps_v1.ReplicaSet: ("spec.template", True),
    apps_v1.StatefulSet: ("spec.template", False),
    batch_v1.CronJob: ("spec.jobTemplate.spec.template", True),
    batch_v1.Job: ("spec.template", True),
    core_v1.PodTemplate: ("template", False),
    core_v1.ReplicationController: ("spec.template", True),
}


def warnings_of(new: Any, old: Any = None) -> list[str]:
    """Warnings of an object that was found valid.

    Args:
        old: before an update, None on a create. Only a changed spec is warned of again, pods never.
    """
    if isinstance(new, Pod):
        return [] if old is not None else pod_warnings.pod(new)
    path, named = _TEMPLATES.get(type(new), ("", False))
    if not path or (old is not None and new.metadata.generation == old.metadata.generation):
        return []
    said = pod_warnings.name(new.metadata.name, _NAMED) if named and old is None else []
    template = new
    for part in path.split("."):
        template = getattr(template, part)
    return said + pod_warnings.template(template, path)


def drop_duplicate_owners(metadata: ObjectMeta, *, admitted: bool = False) -> list[str]:
    """Removes owner references that stand there twice, and warns of them.

    Args:
        metadata: changed.
        admitted: as upstream says it of patches, which it looks at after admission only.
    """
    if len(metadata.ownerReferences) < 2:
        return []
    kept: list[Any] = []
    dropped: list[str] = []
    for owner in metadata.ownerReferences:
        if any(codec.same(owner, other) for other in kept if other.uid == owner.uid):
            dropped.append(owner.uid)
        else:
            kept.append(owner)
    if not dropped:
        return []
    del metadata.ownerReferences[:]
    metadata.ownerReferences.extend(kept)
    when = " after mutating admission happens" if admitted else ""
    return [f"{_START}{when}; {_DUPLICATES}: {', '.join(dropped)}"]
