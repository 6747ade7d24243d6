"""One conformance test over every row of the resource table."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from podyard.api import codec, errors, resources
from podyard.api.resources import Resource
from podyard.api.types import DeleteOptions, ListOptions, Message, copy_of
from tests.unit.apiserver.registry_api import CONTEXT, Api, refused

pytestmark = pytest.mark.virtual


def _request() -> bytes:
    """A certificate request, as PEM."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tester")])
    built = x509.CertificateSigningRequestBuilder().subject_name(name)
    signed = built.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)


WORKLOAD = {
    "selector": {"matchLabels": {"app": "one"}},
    "template": {
        "metadata": {"labels": {"app": "one"}},
        "spec": {"containers": [{"name": "main", "image": "nginx"}]},
    },
}
JOB = {"template": {"spec": {**WORKLOAD["template"]["spec"], "restartPolicy": "Never"}}}  # type: ignore[dict-item]
ROLE = {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}
RULE = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
WEBHOOK = {
    "name": "a.example.com",
    "clientConfig": {"url": "https://a.example.com/hook"},
    "rules": [RULE],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}
POLICY = {"matchConstraints": {"resourceRules": [RULE]}}
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "one"}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
DEVICES = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
# A certificate request for the user `tester`.
CSR = base64.b64encode(_request()).decode()
# What each kind needs beside a name.
BODIES: dict[str, dict[str, Any]] = {
    "ClusterRole": ROLE,
    "ClusterRoleBinding": {"roleRef": {"kind": "ClusterRole", "name": "one"}},
    "ControllerRevision": {"data": {"a": 1}, "revision": 1},
    "CronJob": {"spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": JOB}}},
    "CSINode": {"spec": {"drivers": [{"name": "example.com", "nodeID": "n1"}]}},
    "CSIStorageCapacity": {"storageClassName": "fast"},
    "CertificateSigningRequest": {
        "spec": {"request": CSR, "signerName": "example.com/signer", "usages": ["client auth"]}
    },
    "DaemonSet": {"spec": WORKLOAD},
    "DeviceClass": {"spec": {"selectors": [{"cel": {"expression": "true"}}]}},
    "FlowSchema": {
        "spec": {
            "priorityLevelConfiguration": {"name": "one"},
            "rules": [
                {
                    "subjects": [{"kind": "User", "user": {"name": "tester"}}],
                    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                }
            ],
        }
    },
    "HorizontalPodAutoscaler": {"spec": {"scaleTargetRef": TARGET, "maxReplicas": 3}},
    "Ingress": {"spec": {"defaultBackend": {"service": {"name": "one", "port": {"number": 80}}}}},
    "IngressClass": {"spec": {"controller": "example.com/ingress"}},
    "IPAddress": {"spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "one"}}},
    "Job": {"spec": JOB},
    "LimitRange": {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}},
    "MutatingAdmissionPolicy": {
        "spec": {
            **POLICY,
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}],
            "reinvocationPolicy": "Never",
        }
    },
    "MutatingAdmissionPolicyBinding": {"spec": {"policyName": "one"}},
    "MutatingWebhookConfiguration": {"webhooks": [WEBHOOK]},
    "PersistentVolume": {
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/data"},
        }
    },
    "PersistentVolumeClaim": {"spec": CLAIM},
    "PodTemplate": {"template": WORKLOAD["template"]},
    "PriorityLevelConfiguration": {
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}
    },
    "ReplicationController": {"spec": {"template": WORKLOAD["template"]}},
    "ResourceClaim": {"spec": DEVICES},
    "ResourceClaimTemplate": {"spec": {"spec": DEVICES}},
    "ResourceQuota": {"spec": {"hard": {"pods": "4"}}},
    "ResourceSlice": {
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": "n1",
            "pool": {"name": "n1", "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        }
    },
    "Role": ROLE,
    "RoleBinding": {"roleRef": {"kind": "Role", "name": "one"}},
    "RuntimeClass": {"handler": "crun"},
    "ServiceCIDR": {"spec": {"cidrs": ["10.120.0.0/24"]}},
    "StatefulSet": {"spec": {**WORKLOAD, "serviceName": "one"}},
    "StorageClass": {"provisioner": "example.com/disks"},
    "ValidatingAdmissionPolicy": {"spec": {**POLICY, "validations": [{"expression": "true"}]}},
    "ValidatingAdmissionPolicyBinding": {"spec": {"policyName": "one", "validationActions": ["Deny"]}},
    "ValidatingWebhookConfiguration": {"webhooks": [WEBHOOK]},
    "VolumeAttachment": {
        "spec": {"attacher": "example.com", "nodeName": "n1", "source": {"persistentVolumeName": "one"}}
    },
    "VolumeAttributesClass": {"driverName": "example.com", "parameters": {"speed": "high"}},
    "Pod": {"spec": {"containers": [{"name": "main", "image": "nginx"}]}},
    "Deployment": {"spec": WORKLOAD},
    "ReplicaSet": {"spec": WORKLOAD},
    "Service": {"spec": {"ports": [{"port": 80}]}},
    "EndpointSlice": {"addressType": "IPv4", "endpoints": []},
    "PriorityClass": {"value": 5},
    "PodDisruptionBudget": {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "one"}}}},
    "Event": {
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web"},
        "reason": "Started",
        "message": "m",
        "type": "Normal",
    },
    "events.k8s.io/Event": {
        "regarding": {"kind": "Pod", "namespace": "default", "name": "web"},
        "reason": "Started",
        "note": "m",
        "type": "Normal",
        "action": "Starting",
        "reportingController": "k8s.io/tester",
        "reportingInstance": "tester-1",
        # The official Python client leaves out microseconds that are zero, which no server takes.
        "eventTime": "2026-01-01T00:00:00.000001Z",
    },
}
# What a controller may say of each kind; where nothing stands, a condition.
STATUSES: dict[str, dict[str, Any]] = {
    "cronjobs.batch": {"lastScheduleTime": "2026-01-01T00:00:00Z"},
    "ingresses.networking.k8s.io": {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}},
    "persistentvolumes": {"phase": "Released", "reason": "odd"},
    "resourceclaims.resource.k8s.io": {"allocation": {"devices": {}}},
    "resourcequotas": {"used": {"pods": "1"}},
    "volumeattachments.storage.k8s.io": {"attached": True},
}
CONDITION = {
    "type": "Odd",
    "status": "True",
    "reason": "Tested",
    "message": "m",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
ROWS = pytest.mark.parametrize("row", resources.RESOURCES, ids=lambda row: row.qualified)


_addresses: dict[str, str] = {}


def name_for(row: Resource, name: str) -> str:
    """A name that the kind takes, in the order of first use: that of an IPAddress is an address."""
    if row.kind != "IPAddress":
        return name
    return _addresses.setdefault(name, f"fd00::{len(_addresses) + 0x1000:x}")


def build(row: Resource, name: str) -> Any:
    body = BODIES.get(f"{row.group}/{row.kind}", BODIES.get(row.kind, {}))
    metadata = {"name": name} | ({"namespace": "default"} if row.namespaced else {})
    obj: Any = codec.from_dict({"metadata": metadata, **body}, row.message)
    return obj


def status_of(row: Resource) -> dict[str, Any]:
    """An example of a row's status, as a merge patch's body."""
    if row.api_version == "autoscaling/v1":
        return {"status": {"currentReplicas": 2, "desiredReplicas": 3}}
    return {"status": STATUSES.get(row.qualified, {"conditions": [CONDITION]})}


def shows(found: Any, wanted: Any) -> bool:
    """Whether JSON has all that is wanted, at any depth; lists may have more."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(shows(found.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and all(any(shows(item, one) for item in found) for one in wanted)
    return bool(found == wanted)


@pytest.fixture
def one(row: Resource) -> str:
    """A name for the row's object."""
    return name_for(row, "one")


@ROWS
async def test_life_of_an_object(api: Api, row: Resource, one: str) -> None:
    kind: type[Message] = row.message
    made = await api.create(build(row, one))
    metadata = made.message.metadata
    assert metadata.uid
    assert metadata.creationTimestamp.seconds > 0
    assert metadata.resourceVersion == str(made.revision)
    exists = await refused(api.create(build(row, one)))
    assert isinstance(exists, errors.AlreadyExists)
    assert exists.message == f'{row.qualified} "{one}" already exists'

    found = await api.get(kind, one)
    assert found.raw == made.raw
    value = orjson.loads(found.json)
    assert (value["kind"], value["apiVersion"]) == (row.kind, row.api_version)
    assert value["metadata"]["resourceVersion"] == str(made.revision)

    changed = copy_of(made.message)
    changed.metadata.labels["step"] = "1"
    updated, created = await api.update(changed)
    assert not created
    assert updated.revision > made.revision
    assert updated.message.metadata.labels["step"] == "1"
    assert updated.message.metadata.uid == metadata.uid
    conflict = await refused(api.update(changed))
    assert isinstance(conflict, errors.Conflict)
    assert conflict.message == (
        f'Operation cannot be fulfilled on {row.qualified} "{one}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    same, _ = await api.update(copy_of(updated.message))
    assert same.revision == updated.revision

    patched = await api.patch(kind, one, b'{"metadata":{"labels":{"step":"2"}}}')
    patched = await api.patch(
        kind, one, b'[{"op":"add","path":"/metadata/labels/json","value":"3"}]', how="json"
    )
    patched = await api.patch(
        kind, one, b'{"metadata":{"labels":{"step":null},"finalizers":["a/b"]}}', how="strategic"
    )
    assert dict(patched.message.metadata.labels).items() >= {"json": "3"}.items()
    assert "step" not in patched.message.metadata.labels
    await api.patch(kind, one, b'{"metadata":{"finalizers":null}}')


@pytest.mark.parametrize(
    "row", [row for row in resources.RESOURCES if "status" in row.subresources], ids=lambda row: row.qualified
)
async def test_status_is_isolated(api: Api, row: Resource, one: str) -> None:
    made = await api.create(build(row, one))
    wanted = status_of(row)
    through_main = await api.patch(row.message, one, orjson.dumps(wanted))
    assert through_main.revision == made.revision
    body = {**wanted, "spec": {"unschedulable": True}}
    through_status = await api.patch(row.message, one, orjson.dumps(body), subresource="status")
    assert shows(codec.to_dict(through_status.message), wanted)
    assert through_status.message.spec == made.message.spec
    assert isinstance(
        await refused(api.update(build(row, name_for(row, "two")), subresource="status")), errors.NotFound
    )


@ROWS
async def test_list_pages_and_selectors(api: Api, row: Resource, one: str) -> None:
    wanted = [name_for(row, f"n{index}") for index in range(5)]
    for index in range(5):
        obj = build(row, wanted[index])
        obj.metadata.labels["parity"] = "even" if index % 2 == 0 else "odd"
        await api.create(obj)

    def names(listed: Any) -> list[str]:
        return [item.name for item in listed.items if item.name in wanted]

    assert names(await api.list(row.message)) == wanted
    odd = await api.list(row.message, labelSelector="parity=odd")
    assert names(odd) == [wanted[1], wanted[3]]
    assert odd.remaining is None
    assert names(await api.list(row.message, fieldSelector=f"metadata.name={wanted[2]}")) == [wanted[2]]
    assert names(await api.list(row.message, namespace="default" if row.namespaced else "")) == wanted
    if row.namespaced:
        assert names(await api.list(row.message, namespace="other")) == []
        assert names(await api.list(row.message, fieldSelector="metadata.namespace=other")) == []
    # An empty value asks for an object that has none there; it is not "any".
    empty = ["metadata.name=", "metadata.name==", *(["metadata.namespace="] if row.namespaced else [])]
    for selector in empty:
        for namespace in ("", "default") if row.namespaced else ("",):
            assert names(await api.list(row.message, namespace=namespace, fieldSelector=selector)) == []
        deleted = await api.registry.delete_collection(
            CONTEXT, row, namespace, DeleteOptions(), ListOptions(fieldSelector=selector)
        )
        assert not deleted.items
    assert names(await api.list(row.message, fieldSelector="metadata.name!=")) == wanted
    listed, token = [], ""
    revision, late = "", []
    while True:
        page = await api.list(row.message, limit=2, **({"continue": token} if token else {}))
        revision = revision or page.resource_version
        assert page.resource_version == revision
        listed += [item.name for item in page.items]
        token = page.continue_token
        assert (page.remaining is None) == (not token)
        if not token:
            break
        # What changes between the pages is not seen in them.
        late.append(name_for(row, f"z{len(listed)}"))
        await api.create(build(row, late[-1]))
    assert [name for name in listed if name in wanted] == wanted
    assert not [name for name in listed if name in late]


@ROWS
async def test_watch_from_a_revision(api: Api, row: Resource, one: str) -> None:
    made = await api.create(build(row, one))
    await api.patch(row.message, one, b'{"metadata":{"labels":{"a":"b"}}}')
    await api.create(build(row, name_for(row, "two")))
    stream = api.watch(row.message, resourceVersion=str(made.revision))
    seen: list[tuple[str, str]] = []
    while len(seen) < 2:
        seen += [(kind, item.name) for kind, item in (await anext(stream)).events]
    assert seen == [("MODIFIED", one), ("ADDED", name_for(row, "two"))]
    await stream.aclose()


@ROWS
async def test_delete_with_preconditions(api: Api, row: Resource, one: str) -> None:
    made = await api.create(build(row, one))
    wrong = await refused(api.delete(row.message, one, preconditions={"uid": "other"}))
    assert isinstance(wrong, errors.Conflict)
    assert "the UID in the precondition (other) does not match the UID in record" in wrong.message
    stale = await refused(api.delete(row.message, one, preconditions={"resourceVersion": "1"}))
    assert isinstance(stale, errors.Conflict)
    uid = made.message.metadata.uid
    deleted = await api.delete(row.message, one, preconditions={"uid": uid})
    if row.kind == "Namespace":
        assert deleted.object is not None
        assert deleted.object.message.status.phase == "Terminating"
        return
    if row.shows_deleted:
        assert deleted.object is not None
        assert deleted.object.message.metadata.uid == uid
    else:
        assert deleted.object is None
        details = deleted.status.details
        assert (details.name, details.group, details.kind, details.uid) == (one, row.group, row.plural, uid)
    gone = await refused(api.get(row.message, one))
    assert isinstance(gone, errors.NotFound)
    assert gone.message == f'{row.qualified} "{one}" not found'


@ROWS
async def test_finalizers_hold_an_object(api: Api, row: Resource, one: str) -> None:
    if row.kind == "Namespace":
        pytest.skip("has its own finalizers")
    obj = build(row, one)
    obj.metadata.finalizers.append("podyard.io/test")
    await api.create(obj)
    held = await api.delete(row.message, one)
    assert held.object is not None
    assert held.object.message.metadata.HasField("deletionTimestamp")
    again = await api.delete(row.message, one)
    assert again.object is not None
    assert again.object.revision == held.object.revision
    await api.patch(row.message, one, b'{"metadata":{"finalizers":null}}')
    assert isinstance(await refused(api.get(row.message, one)), errors.NotFound)


@ROWS
async def test_dry_run_changes_nothing(api: Api, row: Resource, one: str) -> None:
    before = await api.store.current_revision()
    made = await api.create(build(row, one), dryRun=["All"])
    assert made.message.metadata.uid
    assert made.message.metadata.resourceVersion == ""
    assert await api.store.current_revision() == before
    await api.create(build(row, one))
    assert isinstance(await refused(api.create(build(row, one), dryRun=["All"])), errors.AlreadyExists)
    before = await api.store.current_revision()
    patched = await api.patch(row.message, one, b'{"metadata":{"labels":{"a":"b"}}}', dryRun=["All"])
    assert patched.message.metadata.labels["a"] == "b"
    await api.delete(row.message, one, dryRun=["All"])
    assert await api.store.current_revision() == before


@ROWS
async def test_put_creates_where_the_row_allows_it(api: Api, row: Resource, one: str) -> None:
    obj = build(row, one)
    if row.create_on_update:
        item, created = await api.update(obj)
        assert created
        assert item.message.metadata.uid
    else:
        assert isinstance(await refused(api.update(obj)), errors.NotFound)


@ROWS
async def test_put_without_a_resource_version(api: Api, row: Resource, one: str) -> None:
    made = await api.create(build(row, one))
    obj = copy_of(made.message)
    obj.metadata.resourceVersion = ""
    obj.metadata.labels["a"] = "b"
    if row.unconditional_update:
        item, _ = await api.update(obj)
        assert item.revision > made.revision
    else:
        error = await refused(api.update(obj))
        assert error.message == (
            f'{row.kind}{"." + row.group if row.group else ""} "{one}" is invalid: '
            "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
        )
