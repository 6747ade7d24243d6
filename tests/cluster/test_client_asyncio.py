"""kubernetes_asyncio: every kind, watches, patches, commands, its configuration and dynamic client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from kubernetes_asyncio import client, config, dynamic, watch
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio.stream import WsApiClient

from podyard.api import resources
from tests.cluster import generated
from tests.cluster.every_kind import example, makeable
from tests.cluster.samples import server
from tests.cluster.sockets import left_behind
from tests.unit.apiserver.test_registry_rows import status_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.asyncio,
    # A watch that is left leaves its connection to the collector.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

VIEW = "-view"


@pytest.fixture(scope="module", autouse=True)
def sockets() -> Iterator[None]:
    with left_behind():
        yield


@pytest_asyncio.fixture
async def connection(kubeconfig: Path) -> AsyncIterator[client.ApiClient]:
    async with await config.new_client_from_config(str(kubeconfig)) as found:
        yield found


@pytest.fixture
def core(connection: client.ApiClient) -> client.CoreV1Api:
    return client.CoreV1Api(connection)


def config_map(name: str, **data: str) -> client.V1ConfigMap:
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"app": name}), data=data)


async def test_every_kind(connection: client.ApiClient, place: str) -> None:
    """Its models raise where a required field is missing or null; an object of every kind is there."""
    kinds = generated.kinds(client, connection)
    wrong = {}
    try:
        for row in makeable():
            kind, name = kinds[row], place if row.storage is None else f"{place}{VIEW}"
            made = await kind.call("create", place, body=example(row, name, place))
            if "status" in row.subresources:
                await kind.call("patch", place, "_status", name=made.metadata.name, body=status_of(row))
            await kind.call("read", place, name=made.metadata.name)
        for row, kind in kinds.items():
            for name, method in kind.lists().items():
                arguments = {"namespace": place} if "_namespaced_" in name else {}
                if row.qualified == "events.events.k8s.io":
                    # The client refuses events that were made as `v1`, without an eventTime: of any server.
                    arguments["field_selector"] = f"metadata.name={place}{VIEW}"
                try:
                    complaint = kind.complaint(await method(**arguments))
                except ValueError as error:
                    complaint = str(error)
                if complaint:
                    wrong[name] = complaint
    finally:
        for row in makeable():
            if "deletecollection" in row.verbs:
                await kinds[row].call("delete_collection", place, label_selector=f"test={place}")
    assert wrong == {}
    assert len(kinds) == len(resources.RESOURCES)


@pytest.fixture
def content(kubeconfig: Path) -> dict[str, Any]:
    """What the file says."""
    return dict(yaml.safe_load(kubeconfig.read_text()))


async def test_configurations(kubeconfig: Path, content: dict[str, Any], place: str) -> None:
    """From the file, from what is in it, and the contexts that it has."""
    contexts, active = config.list_kube_config_contexts(str(kubeconfig))
    assert [entry["name"] for entry in contexts] == [active["name"]] == [content["current-context"]]
    async with await config.new_client_from_config_dict(content, context=active["name"]) as connection:
        assert (await client.VersionApi(connection).get_code()).minor == "36"
    configuration = client.Configuration()
    await config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    configuration.cert_file = configuration.key_file = None
    async with client.ApiClient(configuration) as nobody:
        with pytest.raises(ApiException) as refused:
            await client.CoreV1Api(nobody).list_namespaced_pod(place)
    assert (refused.value.status, json.loads(refused.value.body)["reason"]) == (401, "Unauthorized")


async def test_a_watch_and_the_patches(core: client.CoreV1Api, place: str) -> None:
    version = (await core.list_namespaced_config_map(place)).metadata.resource_version
    made = await core.create_namespaced_config_map(place, config_map("watched", a="1"))
    add = [{"op": "add", "path": "/data/b", "value": "2"}]
    patches: dict[str, Any] = {
        "application/json-patch+json": add,
        "application/merge-patch+json": {"data": {"a": None}},
        "application/strategic-merge-patch+json": {"data": {"c": "3"}},
    }
    for content_type, body in patches.items():
        await core.patch_namespaced_config_map("watched", place, body, _content_type=content_type)
    with pytest.raises(ApiException) as refused:
        await core.replace_namespaced_config_map("watched", place, made)
    assert (refused.value.status, json.loads(refused.value.body)["reason"]) == (409, "Conflict")
    await core.delete_namespaced_config_map("watched", place, body=client.V1DeleteOptions())
    seen = []
    arguments = {"namespace": place, "label_selector": "app=watched", "resource_version": version}
    async with watch.Watch().stream(core.list_namespaced_config_map, **arguments) as events:
        async for event in events:
            seen.append((event["type"], event["object"].data))
            if event["type"] == "DELETED":
                break
        last = events.resource_version
    assert seen == [
        ("ADDED", {"a": "1"}),
        ("MODIFIED", {"a": "1", "b": "2"}),
        ("MODIFIED", {"b": "2"}),
        ("MODIFIED", {"b": "2", "c": "3"}),
        ("DELETED", {"b": "2", "c": "3"}),
    ]
    arguments["resource_version"] = last
    async with watch.Watch().stream(
        core.list_namespaced_config_map, **arguments, timeout_seconds=1
    ) as events:
        assert [event async for event in events] == []


async def test_a_watch_begins_with_what_is_there(core: client.CoreV1Api, place: str) -> None:
    await core.create_namespaced_config_map(place, config_map("initial"))
    stream = watch.Watch().stream(
        core.list_namespaced_config_map,
        place,
        label_selector="app=initial",
        **generated.INITIAL_EVENTS,
    )
    seen = []
    async with stream as events:
        async for event in events:
            seen.append(event["type"])
            if event["type"] == "BOOKMARK":
                break
    assert seen == ["ADDED", "BOOKMARK"]
    assert int(stream.resource_version) > 0


async def test_the_dynamic_client(connection: client.ApiClient, place: str, tmp_path: Path) -> None:
    found = await dynamic.DynamicClient(connection, cache_file=str(tmp_path / "discovered"))
    maps = await found.resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dynamic"}, "data": {"a": "1"}}
    made = await maps.create(body=body, namespace=place)
    merged = await maps.patch(
        body={"metadata": {"name": "dynamic"}, "data": {"b": "2"}},
        namespace=place,
        content_type="application/merge-patch+json",
    )
    assert merged.data.to_dict() == {"a": "1", "b": "2"}
    assert merged.metadata.uid == made.metadata.uid
    await maps.delete(name="dynamic", namespace=place)
    # It hands on the Status of a refusal, where the official one raises.
    absent = await maps.get(name="dynamic", namespace=place)
    assert (absent.kind, absent.reason, absent.code) == ("Status", "NotFound", 404)


async def test_a_pod_its_log_and_a_command(core: client.CoreV1Api, kubeconfig: Path, place: str) -> None:
    await core.create_namespaced_pod(place, server("web"))
    async with watch.Watch().stream(core.list_namespaced_pod, place, label_selector="app=web") as events:
        async for event in events:
            conditions = event["object"].status.conditions or ()
            if any((condition.type, condition.status) == ("Ready", "True") for condition in conditions):
                break
    lines = []
    async with watch.Watch().stream(core.read_namespaced_pod_log, "web", place) as log:
        async for line in log:
            lines.append(line)
            if len(lines) == 3:
                break
    assert lines == ["line 1\n", "line 2\n", "line 3\n"]

    configuration = client.Configuration()
    await config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    async with WsApiClient(configuration) as sockets:
        streams = client.CoreV1Api(sockets)
        command = ["sh", "-c", "echo out; echo err >&2"]
        arguments = {"name": "web", "namespace": place, "stdout": True, "stderr": True, "tty": False}
        said = await streams.connect_get_namespaced_pod_exec(**arguments, command=command, stdin=False)
        assert sorted(said.split()) == ["err", "out"]
        command = ["sh", "-c", "read line; echo got $line; exit 3"]
        session = await streams.connect_get_namespaced_pod_exec(
            **arguments, command=command, stdin=True, _preload_content=False
        )
        output, ended = b"", b""
        async with session as socket:
            await socket.send_bytes(b"\x00hello\n")
            async for message in socket:
                if message.data[:1] == b"\x01":
                    output += message.data[1:]
                if message.data[:1] == b"\x03":
                    ended += message.data[1:]
        assert (output, WsApiClient.parse_error_data(ended)) == (b"got hello\n", 3)
