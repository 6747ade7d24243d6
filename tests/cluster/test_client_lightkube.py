"""Lightkube: every kind that it knows and that is served, patches, watches, waits, logs and commands."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightkube
import pytest
from lightkube import codecs, operators
from lightkube import resources as known
from lightkube.core.exceptions import ApiError
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Pod
from lightkube.types import CascadeType, PatchType

from podyard.api import resources
from podyard.api.resources import Resource
from tests.cluster.every_kind import example, makeable
from tests.cluster.samples import server
from tests.cluster.scenario import deployment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def client(kubeconfig: Path, place: str) -> Iterator[lightkube.Client]:
    loaded = lightkube.KubeConfig.from_file(kubeconfig)
    with lightkube.Client(
        config=loaded, namespace=place, field_manager="lightkube", trust_env=False
    ) as found:
        yield found


@pytest.fixture(scope="module")
def classes() -> dict[Resource, Any]:
    """Its class for each served kind."""
    found = {}
    for module in pkgutil.iter_modules(known.__path__):
        for value in vars(importlib.import_module(f"lightkube.resources.{module.name}")).values():
            info = getattr(value, "_api_info", None)
            if info is None or info.parent is not None or info.action is not None:
                continue
            row = resources.find_plural(info.resource.group, info.resource.version, info.plural)
            if row is not None and not row.is_review and info.resource.kind == row.kind:
                found[row] = value
    return found


def test_it_knows_every_kind(classes: dict[Resource, Any]) -> None:
    assert {row.qualified for row in resources.RESOURCES} == {row.qualified for row in classes}


def test_every_kind(client: lightkube.Client, classes: dict[Resource, Any], place: str) -> None:
    """Made from plain data, found in its list and alone, changed, and deleted."""
    for row in makeable():
        kind = classes[row]
        obj = codecs.from_dict(example(row, f"{place}-{row.version}", place))
        assert isinstance(obj, kind)
        made = client.create(obj)
        name, uid = made.metadata.name, made.metadata.uid
        listed = list(client.list(kind, labels={"test": place}))
        assert uid in [item.metadata.uid for item in listed], row.qualified
        found = client.get(kind, name)
        assert (found.kind, found.apiVersion, found.metadata.uid) == (row.kind, row.api_version, uid)
        patched = client.patch(kind, name, {"metadata": {"labels": {"patched": "yes"}}})
        assert patched.metadata.labels["patched"] == "yes"
        client.delete(kind, name, grace_period=0)
        with pytest.raises(ApiError) as refused:
            client.get(kind, name)
        assert (refused.value.status.code, refused.value.status.reason) == (404, "NotFound")


def test_the_clusters_own_parts(client: lightkube.Client, classes: dict[Resource, Any], place: str) -> None:
    """Lists of what nobody made here, in all namespaces where it has any."""
    for row, kind in classes.items():
        if row.qualified == "events.events.k8s.io":
            # It refuses events that were made as `v1`, without an eventTime: of any server.
            continue
        everywhere = {"namespace": "*"} if row.namespaced else {}
        names = [item.metadata.name for item in client.list(kind, **everywhere, chunk_size=3)]
        assert len(names) == len(set(names)) or row.namespaced
        if row.kind in ("Namespace", "Node", "ServiceAccount", "Endpoints", "EndpointSlice", "Lease"):
            assert names


def config_map(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, labels={"app": name}), data=data)


def test_patches(client: lightkube.Client) -> None:
    client.create(config_map("patched", a="1"))
    add = [{"op": "add", "path": "/data/b", "value": "2"}]
    assert client.patch(ConfigMap, "patched", add, patch_type=PatchType.JSON).data == {"a": "1", "b": "2"}
    merge = {"data": {"a": None}}
    assert client.patch(ConfigMap, "patched", merge, patch_type=PatchType.MERGE).data == {"b": "2"}
    client.create(codecs.from_dict(deployment("patched")))
    containers = {"spec": {"template": {"spec": {"containers": [{"name": "nginx", "env": [{"name": "A"}]}]}}}}
    strategic = client.patch(Deployment, "patched", containers, patch_type=PatchType.STRATEGIC)
    (container,) = strategic.spec.template.spec.containers
    # Merged by name: the image stays.
    assert (container.image, container.env[0].name) == ("nginx", "A")
    client.patch(Deployment.Scale, "patched", {"spec": {"replicas": 1}})
    assert client.get(Deployment.Scale, "patched").spec.replicas == 1
    found = client.wait(Deployment, "patched", for_conditions=["Available"])
    # From before the end: a watch that begins after it would show nothing for ever.
    since = found.metadata.resourceVersion
    client.delete(Deployment, "patched", cascade=CascadeType.FOREGROUND)
    for event, _ in client.watch(Deployment, fields={"metadata.name": "patched"}, resource_version=since):
        if event == "DELETED":
            break


def test_a_conflict_and_an_invalid_object(client: lightkube.Client) -> None:
    stale = client.create(config_map("replaced"))
    changed = client.get(ConfigMap, "replaced")
    changed.data = {"a": "1"}
    assert client.replace(changed).data == {"a": "1"}
    with pytest.raises(ApiError) as refused:
        client.replace(stale)
    assert (refused.value.status.code, refused.value.status.reason) == (409, "Conflict")
    assert "the object has been modified" in str(refused.value)
    with pytest.raises(ApiError) as refused:
        client.create(ConfigMap(metadata=ObjectMeta(name="Not A Name")))
    status = refused.value.status
    assert (status.code, [cause.field for cause in status.details.causes]) == (422, ["metadata.name"])


def test_server_side_apply_is_refused_clearly(client: lightkube.Client) -> None:
    with pytest.raises(ApiError) as refused:
        client.apply(config_map("applied", a="1"))
    status = refused.value.status
    assert (status.code, status.reason) == (415, "UnsupportedMediaType")
    with pytest.raises(ApiError) as refused:
        client.get(ConfigMap, "applied")
    assert refused.value.status.code == 404


def test_a_watch(client: lightkube.Client) -> None:
    listed = client.list(ConfigMap, labels={"app": operators.in_(["watched"])})
    assert not list(listed)
    client.create(config_map("watched", a="1"))
    client.patch(ConfigMap, "watched", {"data": {"a": "2"}})
    client.delete(ConfigMap, "watched")
    seen = []
    for event, obj in client.watch(
        ConfigMap, labels={"app": "watched"}, resource_version=listed.resourceVersion
    ):
        seen.append((event, obj.data))
        if event == "DELETED":
            break
    assert seen == [("ADDED", {"a": "1"}), ("MODIFIED", {"a": "2"}), ("DELETED", {"a": "2"})]


def test_a_pod_its_log_and_a_command(client: lightkube.Client) -> None:
    client.create(codecs.from_dict(server("web")))
    found = client.wait(Pod, "web", for_conditions=["Ready"], raise_for_conditions=["Failed"])
    assert found.status.phase == "Running"
    lines = client.log("web", follow=True)
    assert [next(lines) for _ in range(3)] == ["line 1\n", "line 2\n", "line 3\n"]
    (last,) = client.log("web", tail_lines=1, timestamps=True, newlines=False)
    assert " line " in last
    done = client.exec(
        "web", command=["sh", "-c", "cat; echo err >&2; exit 3"], stdin="sent", stdout=True, stderr=True
    )
    assert (done.stdout, done.stderr, done.exit_code) == ("sent", "err\n", 3)
