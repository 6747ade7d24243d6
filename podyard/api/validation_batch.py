"""Validation of Jobs and CronJobs.

What may change in a Job, and its status: `validation_jobs`.

Counterpart: kubernetes pkg/apis/batch/validation.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Mapping
from typing import Any

from podyard.api import cron, names
from podyard.api.errors import invalid, not_supported, required, too_long
from podyard.api.types import Message, batch_v1
from podyard.api.validation_apps import pod_template, selects_template
from podyard.api.validation_jobs import job_status, job_stays
from podyard.api.validation_meta import (
    Causes,
    Rules,
    any_status,
    each,
    go_struct,
    label_selector,
    non_negative,
    object_meta,
    rules,
)
from podyard.api.validation_policies import pod_failure_policy, success_policy

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
MAX_CRON_NAME = 52
_MAX_MANAGER = 63
_MAX_PARALLEL_INDEXED = 100_000
_MAX_FAILED_INDEXES = 100_000
_MANY_COMPLETIONS = 100_000
_MAX_WITH_MANY = 10_000
_MODES = ("Indexed", "NonIndexed")
_CONCURRENCY = ("Allow", "Forbid", "Replace")
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", re.ASCII)


def job(obj: batch_v1.Job) -> Causes:
    """A job."""
    causes = object_meta(obj.metadata, namespaced=True, name_problems=names.dns_subdomain_problems)
    causes += _generated_selector(obj)
    causes += _whole_spec(obj.spec, "spec")
    if not causes and obj.spec.completionMode == "Indexed" and obj.spec.completions > 0:
        longest = f"{obj.metadata.name}-{obj.spec.completions - 1}"
        if names.dns_label_problems(longest):
            detail = f"will not able to create pod with invalid DNS label: {longest}"
            causes.append(invalid("metadata.name", obj.metadata.name, detail))
    return causes


def _generated_selector(obj: batch_v1.Job) -> Causes:
    if obj.spec.manualSelector or not obj.spec.HasField("selector"):
        return []
    labels = dict(obj.spec.template.metadata.labels)
    causes: Causes = []
    for key, wanted in ((CONTROLLER_UID, obj.metadata.uid), (JOB_NAME, obj.metadata.name)):
        path = f"spec.template.metadata.labels[{key}]"
        if key not in labels:
            causes.append(required(path, f"must be '{wanted}'"))
        elif labels[key] != wanted:
            causes.append(invalid(path, labels, f"must be '{wanted}'"))
    if obj.spec.selector.matchLabels.get(CONTROLLER_UID) != obj.metadata.uid and (
        obj.spec.selector.matchLabels.get("controller-uid") != obj.metadata.uid
    ):
        shown = go_struct(obj.spec.selector)
        causes.append(invalid("spec.selector", shown, "`selector` not auto-generated"))
    return causes


def _whole_spec(spec: batch_v1.JobSpec, path: str) -> Causes:
    causes = job_spec(spec, path)
    if not spec.HasField("selector"):
        causes.append(required(f"{path}.selector"))
    causes += label_selector(spec.selector, f"{path}.selector")
    return causes + selects_template(spec, spec.template, f"{path}.template")


def job_spec(spec: batch_v1.JobSpec, path: str) -> Causes:
    """A job's spec, in jobs and in templates of jobs; the selector apart."""
    causes: Causes = []
    for name in (
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ):
        causes += non_negative(f"{path}.{name}", getattr(spec, name))
    if spec.HasField("maxFailedIndexes") and not spec.HasField("backoffLimitPerIndex"):
        causes.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    causes += _managed_by(spec, f"{path}.managedBy")
    causes += _completion_mode(spec, path)
    if spec.HasField("podFailurePolicy"):
        causes += pod_failure_policy(spec, f"{path}.podFailurePolicy")
    if spec.HasField("successPolicy"):
        if spec.completionMode != "Indexed":
            shown = go_struct(spec.successPolicy)
            causes.append(invalid(f"{path}.successPolicy", shown, "requires indexed completion mode"))
        else:
            causes += success_policy(spec, f"{path}.successPolicy")
    if spec.HasField("podReplacementPolicy"):
        allowed = ["Failed"] if spec.HasField("podFailurePolicy") else ["Failed", "TerminatingOrFailed"]
        if spec.podReplacementPolicy not in allowed:
            causes.append(not_supported(f"{path}.podReplacementPolicy", spec.podReplacementPolicy, allowed))
    causes += pod_template(spec.template, f"{path}.template")
    return causes + _restart_policy(spec, f"{path}.template.spec.restartPolicy")


def _managed_by(spec: Any, path: str) -> Causes:
    if not spec.HasField("managedBy"):
        return []
    causes = each(path, spec.managedBy, names.prefixed_path_problems(spec.managedBy))
    if len(spec.managedBy) > _MAX_MANAGER:
        causes.append(too_long(path, _MAX_MANAGER))
    return causes


def _restart_policy(spec: Any, path: str) -> Causes:
    policy = spec.template.spec.restartPolicy
    if policy in ("", "Always"):
        return [required(path, 'valid values: "OnFailure", "Never"')]
    if policy not in ("OnFailure", "Never"):
        return [not_supported(path, policy, ("OnFailure", "Never"))]
    if spec.HasField("podFailurePolicy") and policy != "Never":
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        return [invalid(path, policy, detail)]
    return []


def _completion_mode(spec: Any, path: str) -> Causes:
    if not spec.HasField("completionMode"):
        return []
    if spec.completionMode not in _MODES:
        return [not_supported(f"{path}.completionMode", spec.completionMode, _MODES)]
    if spec.completionMode == "Indexed":
        return _indexed(spec, path)
    return [
        invalid(f"{path}.{name}", getattr(spec, name), "requires indexed completion mode")
        for name in ("backoffLimitPerIndex", "maxFailedIndexes")
        if spec.HasField(name)
    ]


def _indexed(spec: Any, path: str) -> Causes:
    causes: Causes = []
    has_completions, has_failed = spec.HasField("completions"), spec.HasField("maxFailedIndexes")
    if not has_completions:
        causes.append(required(f"{path}.completions", "when completion mode is Indexed"))
    if spec.HasField("parallelism") and spec.parallelism > _MAX_PARALLEL_INDEXED:
        detail = f"must be less than or equal to {_MAX_PARALLEL_INDEXED} when completion mode is Indexed"
        causes.append(invalid(f"{path}.parallelism", spec.parallelism, detail))
    failed_path = f"{path}.maxFailedIndexes"
    if has_completions and has_failed and spec.maxFailedIndexes > spec.completions:
        detail = "must be less than or equal to completions"
        causes.append(invalid(failed_path, spec.maxFailedIndexes, detail))
    if has_failed and spec.maxFailedIndexes > _MAX_FAILED_INDEXES:
        detail = f"must be less than or equal to {_MAX_FAILED_INDEXES}"
        causes.append(invalid(failed_path, spec.maxFailedIndexes, detail))
    if spec.completions > _MANY_COMPLETIONS and spec.HasField("backoffLimitPerIndex"):
        detail = (
            f"must be less than or equal to {_MAX_WITH_MANY} when completions are above "
            f"{_MANY_COMPLETIONS} and used with backoff limit per index"
        )
        if not has_failed:
            text = f"must be specified when completions is above {_MANY_COMPLETIONS}"
            causes.append(required(failed_path, text))
        if spec.parallelism > _MAX_WITH_MANY:
            causes.append(invalid(f"{path}.parallelism", spec.parallelism, detail))
        if spec.maxFailedIndexes > _MAX_WITH_MANY:
            causes.append(invalid(failed_path, spec.maxFailedIndexes, detail))
    return causes


def cron_job(obj: batch_v1.CronJob) -> Causes:
    """A cron job: its schedule and the job that it makes."""
    causes = object_meta(obj.metadata, namespaced=True, name_problems=names.dns_subdomain_problems)
    spec = obj.spec
    causes += _schedule(spec.schedule, "spec.schedule")
    if spec.HasField("startingDeadlineSeconds"):
        causes += non_negative("spec.startingDeadlineSeconds", spec.startingDeadlineSeconds)
    if spec.HasField("timeZone"):
        causes += _time_zone(spec.timeZone, "spec.timeZone")
    if spec.concurrencyPolicy not in _CONCURRENCY:
        path = "spec.concurrencyPolicy"
        found = not_supported(path, spec.concurrencyPolicy, _CONCURRENCY)
        causes.append(found if spec.concurrencyPolicy else required(path))
    path = "spec.jobTemplate.spec"
    causes += job_spec(spec.jobTemplate.spec, path)
    if spec.jobTemplate.spec.HasField("selector"):
        shown = go_struct(spec.jobTemplate.spec.selector)
        causes.append(invalid(f"{path}.selector", shown, "`selector` will be auto-generated"))
    if spec.jobTemplate.spec.manualSelector:
        causes.append(not_supported(f"{path}.manualSelector", True, ("nil", "false")))
    for name in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        causes += non_negative(f"spec.{name}", getattr(spec, name))
    if len(obj.metadata.name) > MAX_CRON_NAME:
        # Eleven characters are for the job's own part of its name.
        detail = f"must be no more than {MAX_CRON_NAME} characters"
        causes.append(invalid("metadata.name", obj.metadata.name, detail))
    return causes


def _schedule(text: str, path: str) -> Causes:
    if not text:
        return [required(path)]
    if "TZ" in text:
        detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        return [invalid(path, text, detail)]
    try:
        cron.parse(text)
    except cron.ScheduleError as error:
        return [invalid(path, text, str(error))]
    return []


def _time_zone(name: str, path: str) -> Causes:
    if not name:
        return [invalid(path, name, "timeZone must be nil or non-empty string")]
    if name.lower() == "local":
        detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        return [invalid(path, name, detail)]
    try:
        known = _ZONE.fullmatch(name) is not None and zoneinfo.ZoneInfo(name) is not None
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        known = False
    return [] if known else [invalid(path, name, f"unknown time zone {name}")]


RULES: Mapping[type[Message], Rules] = {
    batch_v1.Job: rules(job, job_stays, status=job_status),
    batch_v1.CronJob: rules(cron_job, status=any_status),
}
