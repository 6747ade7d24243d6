"""What the server itself does to objects of single kinds before they are stored."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from apiserver.auth.user import RequestContext, UserInfo
from podyard.api import codec, errors, resources
from podyard.api.types import (
    apps_v1,
    autoscaling_v1,
    autoscaling_v2,
    batch_v1,
    certificates_v1,
    core_v1,
    meta_v1,
    resource_v1,
)
from tests.unit.apiserver.registry_api import Api, refused
from tests.unit.apiserver.test_registry_rows import JOB, build

pytestmark = pytest.mark.virtual


def example(kind: Any, **spec: Any) -> Any:
    """The row's example, with more in its spec."""
    obj = build(resources.by_message(kind), "one")
    if spec:
        obj.spec.MergeFrom(codec.from_dict({"spec": spec}, kind).spec)
    return obj


async def test_a_job_selects_its_own_pods(api: Api) -> None:
    made = (await api.create(example(batch_v1.Job))).message
    uid = made.metadata.uid
    assert dict(made.spec.selector.matchLabels) == {"batch.kubernetes.io/controller-uid": uid}
    labels = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "one",
        "controller-uid": uid,
        "job-name": "one",
    }
    assert dict(made.spec.template.metadata.labels) == labels
    assert dict(made.metadata.labels) == labels
    changed = await api.patch(batch_v1.Job, "one", b'{"spec":{"suspend":true}}')
    assert changed.message.metadata.generation == 2


async def test_labels_that_a_job_needs_for_itself(api: Api) -> None:
    wrong = {"metadata": {"labels": {"batch.kubernetes.io/job-name": "other"}}}
    error = await refused(api.create(example(batch_v1.Job, template=wrong)))
    assert isinstance(error, errors.Invalid)
    (cause,) = error.causes
    assert cause.field == "spec.template.metadata.labels[batch.kubernetes.io/job-name]"
    assert cause.message.endswith(": must be 'one'")


async def test_a_job_with_a_selector_of_its_own(api: Api) -> None:
    chosen = {"matchLabels": {"app": "one"}}
    template = {"metadata": {"labels": {"app": "one"}}}
    made = (
        await api.create(example(batch_v1.Job, manualSelector=True, selector=chosen, template=template))
    ).message
    assert dict(made.spec.selector.matchLabels) == {"app": "one"}
    error = await refused(
        api.create(
            codec.from_dict(
                {"metadata": {"name": "two", "namespace": "default"}, "spec": {**JOB, "selector": chosen}},
                batch_v1.Job,
            )
        )
    )
    assert isinstance(error, errors.Invalid)
    assert "`selector` does not match template `labels`" in error.message


async def test_a_daemon_sets_template_is_counted(api: Api) -> None:
    name = "deprecated.daemonset.template.generation"
    made = await api.create(example(apps_v1.DaemonSet))
    assert made.message.metadata.annotations[name] == "1"
    for body, number in (
        ('{"spec":{"minReadySeconds":1}}', "1"),
        ('{"spec":{"template":{"spec":{"dnsPolicy":"Default"}}}}', "2"),
    ):
        changed = await api.patch(apps_v1.DaemonSet, "one", body.encode())
        assert changed.message.metadata.annotations[name] == number
    assert changed.message.metadata.generation == 3


async def test_one_autoscaler_in_two_versions(api: Api) -> None:
    made = await api.create(example(autoscaling_v1.HorizontalPodAutoscaler))
    full = (await api.get(autoscaling_v2.HorizontalPodAutoscaler, "one")).message
    assert full.metadata.uid == made.message.metadata.uid
    assert full.spec.metrics[0].resource.target.averageUtilization == 80
    memory = [
        {
            "type": "Resource",
            "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 5}},
        }
    ]
    await api.patch(
        autoscaling_v2.HorizontalPodAutoscaler, "one", orjson.dumps({"spec": {"metrics": memory}})
    )
    # A client of the older version changes what it knows and loses nothing else.
    await api.patch(autoscaling_v1.HorizontalPodAutoscaler, "one", b'{"spec":{"maxReplicas":7}}')
    full = (await api.get(autoscaling_v2.HorizontalPodAutoscaler, "one")).message
    assert [codec.to_dict(metric) for metric in full.spec.metrics] == memory
    assert full.spec.maxReplicas == 7
    assert not full.metadata.annotations
    value, _ = await api.store.get("/registry/horizontalpodautoscalers/default/one")
    assert value is not None
    assert codec.decode_envelope(value.value)[:2] == ("autoscaling/v2", "HorizontalPodAutoscaler")


async def test_volumes_and_claims_begin_pending(api: Api) -> None:
    volume = example(core_v1.PersistentVolume)
    volume.status.phase = "Bound"
    made = (await api.create(volume)).message
    assert made.status.phase == "Pending"
    began_s = made.status.lastPhaseTransitionTime.seconds
    assert began_s == made.metadata.creationTimestamp.seconds
    bound = await api.patch(
        core_v1.PersistentVolume, "one", b'{"status":{"phase":"Bound"}}', subresource="status"
    )
    assert bound.message.status.lastPhaseTransitionTime.seconds >= began_s
    source = {"kind": "PersistentVolumeClaim", "name": "other"}
    claim = (await api.create(example(core_v1.PersistentVolumeClaim, dataSource=source))).message
    assert (claim.status.phase, claim.spec.dataSourceRef.name) == ("Pending", "other")


async def test_a_request_for_a_certificate_names_who_asks(api: Api) -> None:
    kind = certificates_v1.CertificateSigningRequest
    asked = example(kind)
    asked.spec.username = "somebody-else"
    asked.status.conditions.add(type="Approved", status="True")
    context = RequestContext(UserInfo("jane", ("devs", "system:authenticated"), "u1", {"scope": ("a", "b")}))
    made = await api.registry.create(context, resources.by_message(kind), "", asked, meta_v1.CreateOptions())
    spec = made.message.spec
    assert (spec.username, spec.uid, list(spec.groups)) == ("jane", "u1", ["devs", "system:authenticated"])
    assert list(spec.extra["scope"].items) == ["a", "b"]
    assert not made.message.status.conditions

    # Only the subresource approves, and only `status` brings the certificate.
    approval = {"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "Tested"}]}}
    body = orjson.dumps(approval)
    for subresource in ("", "status"):
        if subresource:
            assert isinstance(
                await refused(api.patch(kind, "one", body, subresource=subresource)), errors.Invalid
            )
        else:
            assert (await api.patch(kind, "one", body)).revision == made.revision
    approved = (await api.patch(kind, "one", body, subresource="approval")).message
    (condition,) = approved.status.conditions
    assert condition.lastUpdateTime.seconds > 0
    assert condition.lastTransitionTime.seconds > 0
    renamed = await api.patch(kind, "one", b'{"spec":{"username":"x"}}')
    assert renamed.message.spec.username == "jane"


async def test_taints_of_devices_have_their_time(api: Api) -> None:
    taint = {"key": "a.b/c", "effect": "NoSchedule"}
    made = example(resource_v1.ResourceSlice)
    made.spec.devices[0].taints.append(codec.from_dict(taint, resource_v1.DeviceTaint))
    stored = (await api.create(made)).message
    assert stored.spec.devices[0].taints[0].timeAdded.seconds > 0


@pytest.mark.parametrize("kind", [core_v1.ReplicationController, apps_v1.StatefulSet])
async def test_scales(api: Api, kind: Any) -> None:
    await api.create(example(kind))
    row = resources.by_message(kind)
    scale = (await api.registry.scales.get(row, "default", "one")).message
    assert (scale.spec.replicas, scale.status.selector) == (1, "app=one")
    scale.spec.replicas = 4
    await api.registry.scales.update(row, "default", "one", scale, meta_v1.UpdateOptions())
    assert (await api.get(kind, "one")).message.spec.replicas == 4


async def test_generations_count_what_they_should(api: Api) -> None:
    for row in resources.RESOURCES:
        if row.kind in ("Namespace", "Pod", "IPAddress"):
            continue
        kind, name = row.message, f"{row.version}-{row.kind.lower()}"
        if row.storage is not None:
            name = f"view-{name}"
        made = await api.create(build(row, name))
        labelled = await api.patch(kind, name, b'{"metadata":{"labels":{"a":"b"}}}')
        # Labels count for slices of endpoints alone.
        more = 1 if row.kind == "EndpointSlice" else 0
        assert labelled.message.metadata.generation == made.message.metadata.generation + more, row.qualified
