"""Warnings of writes: what was taken, though it is hardly meant."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from apiserver.rules.warnings import warnings_of
from podyard.api import codec, resources
from podyard.api.types import ConfigMap, Message, Pod, apps_v1, batch_v1, core_v1, meta_v1
from tests.unit.apiserver.registry_api import CONTEXT, Api

pytestmark = pytest.mark.virtual

OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u1"}
OTHER = {**OWNER, "name": "b"}
TEMPLATE = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {
        "containers": [{"name": "main", "image": "nginx"}],
        "nodeSelector": {"beta.kubernetes.io/os": "linux"},
    },
}
TEXT = 'spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead'
NAMED = (
    "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "
    "a DNS label is recommended: [must not contain dots]"
)


def duplicates(when: str, uids: str) -> str:
    return (
        f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in "
        "1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) "
        f"observed: {uids}"
    )


def config_map(*owners: dict[str, str]) -> ConfigMap:
    metadata = {"name": "m", "namespace": "default", "ownerReferences": list(owners)}
    return codec.from_dict({"metadata": metadata}, ConfigMap)


async def create(api: Api, obj: Any) -> tuple[Any, list[str]]:
    said: list[str] = []
    row = resources.by_message(type(obj))
    made = await api.registry.create(CONTEXT, row, "default", obj, meta_v1.CreateOptions(), warnings=said)
    return made.message, said


async def test_owners_that_stand_there_twice(api: Api) -> None:
    made, said = await create(api, config_map(OWNER, OTHER, OWNER, OTHER))
    assert [owner.name for owner in made.metadata.ownerReferences] == ["a", "b"]
    assert said == [duplicates("", "u1, u1")]
    said = []
    row = resources.by_message(ConfigMap)
    updated, _ = await api.registry.update(
        CONTEXT, row, "default", "m", config_map(OWNER, OWNER), meta_v1.UpdateOptions(), warnings=said
    )
    assert [owner.name for owner in updated.message.metadata.ownerReferences] == ["a"]
    assert said == [duplicates("", "u1")]
    said = []
    body = orjson.dumps({"metadata": {"ownerReferences": [OTHER, OTHER]}})
    patched = await api.patch(ConfigMap, "m", body, warnings=said)
    assert [owner.name for owner in patched.message.metadata.ownerReferences] == ["b"]
    assert said == [duplicates(" after mutating admission happens", "u1")]


async def test_a_pod_is_warned_of_once(api: Api) -> None:
    obj = codec.from_dict({"metadata": {"name": "a.b", "namespace": "default"}, **TEMPLATE}, Pod)
    obj.metadata.name = "a.b"
    _, said = await create(api, obj)
    assert said == [NAMED.replace("Pod names and hostnames", "the Pod's hostname"), TEXT]
    said = ["from before"]
    await api.patch(Pod, "a.b", b'{"metadata":{"labels":{"a":"b"}}}', warnings=said)
    assert said == []


async def test_a_template_is_warned_of_when_the_spec_changes(api: Api) -> None:
    selector = {"matchLabels": {"a": "b"}}
    obj = codec.from_dict(
        {
            "metadata": {"name": "a.b", "namespace": "default"},
            "spec": {"selector": selector, "template": TEMPLATE},
        },
        apps_v1.Deployment,
    )
    _, said = await create(api, obj)
    assert said == [NAMED, f"spec.template.{TEXT}"]
    for body, wanted in ((b'{"metadata":{"labels":{"a":"b"}}}', []), (b'{"spec":{"replicas":3}}', [said[1]])):
        heard: list[str] = []
        await api.patch(apps_v1.Deployment, "a.b", body, warnings=heard)
        assert heard == wanted
    heard = ["from before"]
    await api.patch(apps_v1.Deployment, "a.b", b"{}", subresource="status", warnings=heard)
    assert heard == []


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (apps_v1.DaemonSet, "spec.template"),
        (apps_v1.ReplicaSet, "spec.template"),
        (apps_v1.StatefulSet, "spec.template"),
        (batch_v1.Job, "spec.template"),
        (batch_v1.CronJob, "spec.jobTemplate.spec.template"),
        (core_v1.PodTemplate, "template"),
        (core_v1.ReplicationController, "spec.template"),
    ],
)
def test_every_kind_with_a_template(kind: type[Message], path: str) -> None:
    body: Any = TEMPLATE
    for part in reversed(path.split(".")):
        body = {part: body}
    obj = codec.from_dict({"metadata": {"name": "one"}, **body}, kind)
    assert warnings_of(obj) == [f"{path}.{TEXT}"]
