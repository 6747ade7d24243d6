"""Defaults of workloads beside Deployments and ReplicaSets, and of autoscalers.

Counterpart: kubernetes pkg/apis/{apps,batch,autoscaling,core}/v1 defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podyard.api import hpa_conversion
from podyard.api.pod_defaults import pod_spec
from podyard.api.storage_defaults import claim_spec
from podyard.api.types import IntOrString, Message, apps_v1, autoscaling_v1, autoscaling_v2, batch_v1, core_v1

_NO_LIMIT = 2**31 - 1


def set_missing(message: Any, **values: Any) -> None:
    """Sets scalar fields that are not there."""
    for name, value in values.items():
        if not message.HasField(name):
            setattr(message, name, value)


def daemon_set(obj: apps_v1.DaemonSet) -> None:
    """Rolling, one node at a time."""
    pod_spec(obj.spec.template.spec)
    strategy = obj.spec.updateStrategy
    strategy.type = strategy.type or "RollingUpdate"
    if strategy.type == "RollingUpdate":
        for name, value in (("maxUnavailable", 1), ("maxSurge", 0)):
            if not strategy.rollingUpdate.HasField(name):
                getattr(strategy.rollingUpdate, name).CopyFrom(IntOrString(type=0, intVal=value))
    set_missing(obj.spec, revisionHistoryLimit=10)


def stateful_set(obj: apps_v1.StatefulSet) -> None:
    """One replica, in order, rolling; claims are kept."""
    spec = obj.spec
    pod_spec(spec.template.spec)
    spec.podManagementPolicy = spec.podManagementPolicy or "OrderedReady"
    strategy = spec.updateStrategy
    if not strategy.type:
        strategy.type = "RollingUpdate"
        strategy.rollingUpdate.SetInParent()
    if strategy.type == "RollingUpdate" and strategy.HasField("rollingUpdate"):
        set_missing(strategy.rollingUpdate, partition=0)
    retention = spec.persistentVolumeClaimRetentionPolicy
    retention.whenDeleted = retention.whenDeleted or "Retain"
    retention.whenScaled = retention.whenScaled or "Retain"
    set_missing(spec, replicas=1, revisionHistoryLimit=10)
    for claim in spec.volumeClaimTemplates:
        claim_spec(claim.spec)
        claim.status.phase = claim.status.phase or "Pending"


def replication_controller(obj: core_v1.ReplicationController) -> None:
    """One replica; selector and labels follow the template's labels."""
    spec = obj.spec
    labels = dict(spec.template.metadata.labels)
    if spec.HasField("template"):
        pod_spec(spec.template.spec)
    if labels:
        if not spec.selector:
            spec.selector.update(labels)
        if not obj.metadata.labels:
            obj.metadata.labels.update(labels)
    set_missing(spec, replicas=1)


def pod_template(obj: core_v1.PodTemplate) -> None:
    """As a pod's spec."""
    pod_spec(obj.template.spec)


def job(obj: batch_v1.Job) -> None:
    """One completion, one pod at a time, six retries."""
    job_spec(obj.spec)
    if not obj.metadata.labels:
        obj.metadata.labels.update(obj.spec.template.metadata.labels)


def job_spec(spec: batch_v1.JobSpec) -> None:
    """Of jobs and of templates of jobs."""
    pod_spec(spec.template.spec)
    if not spec.HasField("completions") and not spec.HasField("parallelism"):
        spec.completions = spec.parallelism = 1
    retries = _NO_LIMIT if spec.HasField("backoffLimitPerIndex") else 6
    replacement = "Failed" if spec.HasField("podFailurePolicy") else "TerminatingOrFailed"
    set_missing(
        spec,
        parallelism=1,
        backoffLimit=retries,
        completionMode="NonIndexed",
        suspend=False,
        podReplacementPolicy=replacement,
        manualSelector=False,
    )
    for rule in spec.podFailurePolicy.rules:
        for pattern in rule.onPodConditions:
            pattern.status = pattern.status or "True"


def cron_job(obj: batch_v1.CronJob) -> None:
    """Jobs may overlap; three good ones are kept, and one bad."""
    spec = obj.spec
    spec.concurrencyPolicy = spec.concurrencyPolicy or "Allow"
    set_missing(spec, suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1)
    # A template's job is defaulted when it is made, but for its pods.
    pod_spec(spec.jobTemplate.spec.template.spec)
    for rule in spec.jobTemplate.spec.podFailurePolicy.rules:
        for pattern in rule.onPodConditions:
            pattern.status = pattern.status or "True"


def autoscaler(obj: autoscaling_v2.HorizontalPodAutoscaler) -> None:
    """At least one replica, by the CPU's use; how fast, where anything is said of that."""
    spec = obj.spec
    set_missing(spec, minReplicas=1)
    if not spec.metrics:
        metric = spec.metrics.add(type="Resource")
        metric.resource.name = "cpu"
        metric.resource.target.type = "Utilization"
        metric.resource.target.averageUtilization = 80
    if not spec.HasField("behavior"):
        return
    # Both directions once one is described.
    up, down = spec.behavior.scaleUp, spec.behavior.scaleDown
    set_missing(up, stabilizationWindowSeconds=0, selectPolicy="Max")
    set_missing(down, selectPolicy="Max")
    if not up.policies:
        up.policies.add(type="Pods", value=4, periodSeconds=15)
        up.policies.add(type="Percent", value=100, periodSeconds=15)
    if not down.policies:
        down.policies.add(type="Percent", value=100, periodSeconds=15)


def autoscaler_v1(obj: autoscaling_v1.HorizontalPodAutoscaler) -> None:
    """As the newer version has it."""
    full = hpa_conversion.to_v2(obj)
    autoscaler(full)
    obj.CopyFrom(hpa_conversion.to_v1(full))


DEFAULTS: Mapping[type[Message], Callable[[Any], None]] = {
    apps_v1.DaemonSet: daemon_set,
    apps_v1.StatefulSet: stateful_set,
    autoscaling_v1.HorizontalPodAutoscaler: autoscaler_v1,
    autoscaling_v2.HorizontalPodAutoscaler: autoscaler,
    batch_v1.CronJob: cron_job,
    batch_v1.Job: job,
    core_v1.PodTemplate: pod_template,
    core_v1.ReplicationController: replication_controller,
}
