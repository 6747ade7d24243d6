"""What may change in a Job, and what its status may say.

Counterpart: kubernetes pkg/apis/batch/validation (ValidateJobSpecUpdate, ValidateJobUpdateStatus),
pkg/registry/batch/job getStatusValidationOptions.
"""

from __future__ import annotations

from typing import Any

from podyard.api import codec, meta
from podyard.api.errors import invalid, invalid_whole, required
from podyard.api.types import PodTemplateSpec, batch_v1, copy_of
from podyard.api.validation_meta import IMMUTABLE, Causes, go_struct, non_negative
from podyard.api.validation_policies import count_indexes

_FIXED = ("selector", "podFailurePolicy", "successPolicy")
_FIXED_SCALARS = ("completionMode", "backoffLimitPerIndex", "managedBy")
_FINISHED = ("Complete", "Failed")
# What of a pod's template says where it runs.
_DIRECTIVES = ("nodeSelector", "tolerations", "schedulingGates")


def job_stays(new: batch_v1.Job, old: batch_v1.Job) -> Causes:
    """The parts of a job's spec that may not change."""
    causes = _completions(new.spec, old.spec)
    for name in _FIXED:
        if not codec.same(getattr(new.spec, name), getattr(old.spec, name)):
            causes.append(invalid(f"spec.{name}", go_struct(getattr(new.spec, name)), IMMUTABLE))
    for name in _FIXED_SCALARS:
        if getattr(new.spec, name) != getattr(old.spec, name):
            causes.append(invalid(f"spec.{name}", getattr(new.spec, name), IMMUTABLE))
    return causes + _template(new, old)


def _completions(new: Any, old: Any) -> Causes:
    path = "spec.completions"
    if new.completions == old.completions and new.HasField("completions") == old.HasField("completions"):
        return []
    value = new.completions if new.HasField("completions") else None
    if old.completionMode != "Indexed" or value is None or not old.HasField("completions"):
        return [invalid(path, value, IMMUTABLE)]
    if new.completions != new.parallelism:
        return [invalid(path, value, "can only be modified in tandem with spec.parallelism")]
    return []


def _template(new: batch_v1.Job, old: batch_v1.Job) -> Causes:
    allowed = copy_of(new.spec.template)
    suspended = old.spec.suspend
    if suspended and meta.is_zero_time(old.status.startTime):
        _take_directives(allowed, old.spec.template)
    if suspended:
        _take_resources(allowed, old.spec.template)
    if codec.same(allowed, old.spec.template):
        return []
    return [invalid("spec.template", go_struct(new.spec.template), IMMUTABLE)]


def _take_directives(template: PodTemplateSpec, old: PodTemplateSpec) -> None:
    for name in ("labels", "annotations"):
        values = getattr(template.metadata, name)
        values.clear()
        values.update(getattr(old.metadata, name))
    for name in _DIRECTIVES:
        template.spec.ClearField(name)
        getattr(template.spec, name).MergeFrom(getattr(old.spec, name))
    template.spec.affinity.ClearField("nodeAffinity")
    if old.spec.affinity.HasField("nodeAffinity"):
        template.spec.affinity.nodeAffinity.CopyFrom(old.spec.affinity.nodeAffinity)
    elif not old.spec.HasField("affinity") and not template.spec.affinity.ListFields():
        template.spec.ClearField("affinity")


def _take_resources(template: PodTemplateSpec, old: PodTemplateSpec) -> None:
    for kind in ("containers", "initContainers"):
        before = {container.name: container for container in getattr(old.spec, kind)}
        for container in getattr(template.spec, kind):
            if container.name in before:
                container.resources.CopyFrom(before[container.name].resources)


def job_status(new: batch_v1.Job, old: batch_v1.Job) -> Causes:
    """Counts, indexes, times and conditions that fit together."""
    status = new.status
    causes: Causes = []
    for name in ("active", "succeeded", "failed", "ready", "terminating"):
        causes += non_negative(f"status.{name}", getattr(status, name))
    if status.HasField("ready") and status.ready > status.active:
        causes.append(invalid("status.ready", status.ready, "cannot set more ready pods than active"))
    causes += _indexes(new)
    causes += _uncounted(status.uncountedTerminatedPods, finished=_finished(status))
    causes += _conditions(status, old.status)
    if _finished(status):
        causes += _end(status)
    elif not meta.is_zero_time(status.completionTime):
        detail = "cannot set completionTime when there is no Complete=True condition"
        causes.append(invalid("status.completionTime", codec.to_dict(status)["completionTime"], detail))
    for name in ("succeeded", "failed"):
        if getattr(status, name) < getattr(old.status, name):
            detail = f"cannot decrease the {name} counter"
            causes.append(invalid(f"status.{name}", getattr(status, name), detail))
    return causes + _start(new, old)


def _is(status: Any, kind: str) -> bool:
    return meta.is_condition_true(status.conditions, kind)


def _finished(status: Any) -> bool:
    return any(_is(status, kind) for kind in _FINISHED)


def _indexes(job: batch_v1.Job) -> Causes:
    status, indexed = job.status, job.spec.completionMode == "Indexed"
    causes: Causes = []
    if status.completedIndexes and not indexed:
        detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
        causes.append(invalid("status.completedIndexes", status.completedIndexes, detail))
    if status.HasField("failedIndexes") and not job.spec.HasField("backoffLimitPerIndex"):
        detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        causes.append(invalid("status.failedIndexes", status.failedIndexes, detail))
    for name in ("completedIndexes", "failedIndexes") if indexed else ():
        text = getattr(status, name)
        try:
            count_indexes(text, job.spec.completions)
        except ValueError as error:
            causes.append(invalid(f"status.{name}", text, f"error parsing {name}: {error}"))
    return causes


def _uncounted(pods: Any, *, finished: bool) -> Causes:
    path = "status.uncountedTerminatedPods"
    causes: Causes = []
    if finished and (pods.succeeded or pods.failed):
        detail = "uncountedTerminatedPods needs to be empty for finished job"
        causes.append(invalid(path, go_struct(pods), detail))
    seen: set[str] = set()
    for name in ("succeeded", "failed"):
        for index, uid in enumerate(getattr(pods, name)):
            at = f"{path}.{name}[{index}]"
            if not uid:
                causes.append(invalid(at, uid, "must not be empty"))
            elif uid in seen:
                causes.append(invalid(at, uid, "must be unique"))
            seen.add(uid)
    return causes


def _conditions(status: Any, old: Any) -> Causes:
    path = "status.conditions"
    causes: Causes = []
    for one, other in (
        ("Complete", "Failed"),
        ("Complete", "FailureTarget"),
        ("SuccessCriteriaMet", "Failed"),
    ):
        if _is(status, one) and _is(status, other):
            detail = f"cannot set {one}=True and {other}=true conditions"
            causes.append(invalid_whole(path, detail))
    for kind in _FINISHED:
        if _is(old, kind) and not _is(status, kind):
            causes.append(invalid_whole(path, f"cannot disable the terminal {kind}=True condition"))
    return causes


def _end(status: Any) -> Causes:
    causes: Causes = []
    for name in ("active", "terminating"):
        if getattr(status, name) > 0:
            detail = f"{name}>0 is invalid for finished job"
            causes.append(invalid(f"status.{name}", getattr(status, name), detail))
    if meta.is_zero_time(status.startTime):
        causes.append(required("status.startTime", "startTime is required for finished job"))
    if _is(status, "Complete"):
        path = "status.completionTime"
        if meta.is_zero_time(status.completionTime):
            causes.append(required(path, "completionTime is required for Complete jobs"))
        elif status.completionTime.seconds < status.startTime.seconds:
            detail = "completionTime cannot be set before startTime"
            causes.append(invalid(path, codec.to_dict(status)["completionTime"], detail))
    return causes


def _start(new: batch_v1.Job, old: batch_v1.Job) -> Causes:
    before, after = old.status.startTime, new.status.startTime
    if meta.is_zero_time(before) or new.spec.suspend or old.spec.suspend:
        return []
    if before.seconds == after.seconds:
        return []
    value = codec.to_dict(new.status).get("startTime")
    return [invalid("status.startTime", value, "startTime cannot be modified for unsuspended job")]
