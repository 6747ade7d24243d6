"""Eviction over REST and gRPC, on both stores: the budget is asked, spent, and obeyed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Protocol

import pytest
import pytest_asyncio

from podyard.api import codec, errors, resources
from podyard.api.types import Eviction, Pod, Status, meta_v1, policy_v1, rpc_core_v1
from podyard.client.client import Client
from podyard.client.grpc_transport import GrpcTransport
from tests.component.apiserver.served import Served
from tests.component.apiserver.wires import path_of

pytestmark = pytest.mark.asyncio(loop_scope="session")
REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
PODS = resources.by_message(Pod)


class Way(Protocol):
    """One way to ask for an eviction."""

    async def evict(self, name: str, **options: Any) -> Status: ...


class Rest:
    def __init__(self, served: Served) -> None:
        self._session = served.session

    async def evict(self, name: str, **options: Any) -> Status:
        body: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        if options:
            body["deleteOptions"] = options
        async with self._session.post(path_of(PODS, name, "eviction"), json=body) as answer:
            status: Any = codec.decode_json(await answer.read(), Status).message
            if answer.status != 201:
                assert answer.status == status.code
                wait_s = status.details.retryAfterSeconds
                assert answer.headers.get("Retry-After") == (str(wait_s) if wait_s else None)
                raise errors.from_status(status)
            return status  # type: ignore[no-any-return]


class Grpc:
    def __init__(self, transport: GrpcTransport) -> None:
        self._transport = transport

    async def evict(self, name: str, **options: Any) -> Status:
        eviction = codec.from_dict({"metadata": {"name": name}, "deleteOptions": options}, Eviction)
        request = rpc_core_v1.PodEvictRequest(namespace="default", name=name, object=eviction)
        return await self._transport.call("/podyard.core.v1.PodService/Evict", request, Status)


@pytest_asyncio.fixture(loop_scope="session")
async def transport(served: Served) -> AsyncIterator[GrpcTransport]:
    opened = GrpcTransport([f"localhost:{served.grpc_port}"], served.credentials)
    yield opened
    await opened.close()


@pytest.fixture
def client(transport: GrpcTransport) -> Client:
    return Client(transport, field_manager="tester")


@pytest.fixture(params=["rest", "grpc"])
def way(request: pytest.FixtureRequest, served: Served, transport: GrpcTransport) -> Way:
    return Rest(served) if request.param == "rest" else Grpc(transport)


async def new_pod(
    client: Client, name: str, group: str, phase: str = "Running", *, ready: bool = True
) -> Pod:
    """A pod on a node, so that its end takes its grace."""
    made = await client.create(
        Pod(
            metadata={"name": name, "namespace": "default", "labels": {"group": group}},
            spec={"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
        )
    )
    made.status.phase = phase
    made.status.conditions.add(type="Ready", status="True" if ready else "False")
    return await client.update(made, subresource="status")


async def new_budget(
    client: Client, group: str, name: str = "", **status: Any
) -> policy_v1.PodDisruptionBudget:
    """A budget as its controller would have it."""
    made = await client.create(
        policy_v1.PodDisruptionBudget(
            metadata={"name": name or group, "namespace": "default"},
            spec={"selector": {"matchLabels": {"group": group}}},
        )
    )
    value = {"status": {"observedGeneration": 1, **status}}
    made.status.MergeFrom(codec.from_dict(value, policy_v1.PodDisruptionBudget).status)
    return await client.update(made, subresource="status")


async def refused(work: Any) -> errors.ApiError:
    try:
        await work
    except errors.ApiError as error:
        return error
    raise AssertionError("it was not refused")


async def test_without_a_budget(way: Way, client: Client, unique: str) -> None:
    await new_pod(client, unique, unique)
    status = await way.evict(unique)
    assert (status.status, status.code) == ("Success", 201)
    left = await client.get(Pod, unique, "default")
    assert left.metadata.HasField("deletionTimestamp")
    (target,) = [item for item in left.status.conditions if item.type == "DisruptionTarget"]
    assert (target.status, target.reason, target.message) == (
        "True",
        "EvictionByEvictionAPI",
        "Eviction API: evicting",
    )
    # A second one finds it on its way.
    assert (await way.evict(unique)).status == "Success"
    assert (await way.evict(unique, gracePeriodSeconds=0)).status == "Success"
    gone = await refused(way.evict(unique))
    assert gone.message == f'pods "{unique}" not found'


async def test_a_budget_is_spent_and_then_refuses(way: Way, client: Client, unique: str) -> None:
    for number in range(2):
        await new_pod(client, f"{unique}-{number}", unique)
    await new_budget(client, unique, disruptionsAllowed=1, desiredHealthy=1, currentHealthy=2, expectedPods=2)
    await way.evict(f"{unique}-0")
    spent = await client.get(policy_v1.PodDisruptionBudget, unique, "default")
    assert spent.status.disruptionsAllowed == 0
    assert list(spent.status.disruptedPods) == [f"{unique}-0"]
    error = await refused(way.evict(f"{unique}-1"))
    assert isinstance(error, errors.TooManyRequests)
    assert error.message == REFUSED
    assert [(cause.reason, cause.message) for cause in error.causes] == [
        ("DisruptionBudget", f"The disruption budget {unique} needs 1 healthy pods and has 2 currently")
    ]
    left = await client.get(Pod, f"{unique}-1", "default")
    assert not left.metadata.HasField("deletionTimestamp")
    assert [item.type for item in left.status.conditions] == ["Ready"]


async def test_a_budget_that_is_behind_asks_to_wait(way: Way, client: Client, unique: str) -> None:
    await new_pod(client, unique, unique)
    made = await new_budget(client, unique, disruptionsAllowed=1)
    made.spec.minAvailable.intVal = 1
    await client.update(made)
    error = await refused(way.evict(unique))
    assert isinstance(error, errors.TooManyRequests)
    assert (error.message, error.retry_after_s) == (REFUSED, 10)
    assert (
        error.causes[0].message == f"The disruption budget {unique} is still being processed by the server."
    )


async def test_many_at_once_never_spend_the_same_share(way: Way, client: Client, unique: str) -> None:
    names = [f"{unique}-{number}" for number in range(8)]
    for name in names:
        await new_pod(client, name, unique)
    await new_budget(client, unique, disruptionsAllowed=3, desiredHealthy=5, currentHealthy=8, expectedPods=8)

    async def attempt(name: str) -> bool:
        try:
            await way.evict(name)
        except errors.TooManyRequests:
            return False
        return True

    went = dict(zip(names, await asyncio.gather(*(attempt(name) for name in names)), strict=True))
    assert sum(went.values()) == 3
    spent = await client.get(policy_v1.PodDisruptionBudget, unique, "default")
    assert spent.status.disruptionsAllowed == 0
    assert set(spent.status.disruptedPods) == {name for name, gone in went.items() if gone}


async def test_several_budgets(way: Way, client: Client, unique: str) -> None:
    await new_pod(client, unique, unique)
    for name in (f"{unique}-a", f"{unique}-b"):
        await new_budget(client, unique, name, disruptionsAllowed=1)
    error = await refused(way.evict(unique))
    assert error.code == 500
    assert error.message == (
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    )


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
async def test_pods_that_serve_nobody_go_at_once(way: Way, client: Client, unique: str, phase: str) -> None:
    await new_pod(client, unique, unique, phase)
    await new_budget(client, unique)
    await way.evict(unique, gracePeriodSeconds=0)
    assert isinstance(await refused(client.get(Pod, unique, "default")), errors.NotFound)


async def test_an_unhealthy_pod_of_a_healthy_budget_is_free(way: Way, client: Client, unique: str) -> None:
    await new_pod(client, unique, unique, ready=False)
    await new_budget(client, unique, desiredHealthy=2, currentHealthy=2)
    await way.evict(unique)
    left = await client.get(policy_v1.PodDisruptionBudget, unique, "default")
    assert not left.status.disruptedPods


async def test_dry_run_changes_nothing(way: Way, served: Served, client: Client, unique: str) -> None:
    await new_pod(client, unique, unique)
    await new_budget(client, unique, disruptionsAllowed=1)
    before = [await client.get(kind, unique, "default") for kind in (Pod, policy_v1.PodDisruptionBudget)]
    assert (await way.evict(unique, dryRun=["All"])).status == "Success"
    after = [await client.get(kind, unique, "default") for kind in (Pod, policy_v1.PodDisruptionBudget)]
    assert before == after
    invalid = await refused(way.evict(unique, dryRun=["Some"]))
    assert isinstance(invalid, errors.Invalid)
    assert 'dryRun: Unsupported value: ["Some"]' in invalid.message


async def test_preconditions(way: Way, client: Client, unique: str) -> None:
    made = await new_pod(client, unique, unique)
    for wanted, text in (
        ({"uid": "other"}, "the UID in the precondition (other) does not match the UID in record"),
        ({"resourceVersion": "1"}, "the ResourceVersion in the precondition (1) does not match"),
    ):
        error = await refused(way.evict(unique, preconditions=wanted))
        assert isinstance(error, errors.Conflict)
        assert text in error.message
    await way.evict(
        unique,
        preconditions={"uid": made.metadata.uid, "resourceVersion": made.metadata.resourceVersion},
        gracePeriodSeconds=0,
    )
    assert isinstance(await refused(client.get(Pod, unique, "default")), errors.NotFound)


async def test_other_bodies_are_refused(served: Served, client: Client, unique: str) -> None:
    await new_pod(client, unique, unique)
    path = path_of(PODS, unique, "eviction")
    for body, text in (
        (
            {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "other"}},
            "name in URL does not match name in Eviction object",
        ),
        (
            {"apiVersion": "policy/v1alpha1", "kind": "Eviction", "metadata": {"name": unique}},
            'Eviction in version "v1alpha1" cannot be handled as a Eviction: no kind "Eviction" is '
            'registered for version "policy/v1alpha1" in scheme "pkg/api/legacyscheme/scheme.go:30"',
        ),
    ):
        async with served.session.post(path, json=body) as answer:
            assert (answer.status, (await answer.json())["message"]) == (400, text)
    async with served.session.get(path) as answer:
        assert answer.status == 405
    left = await client.get(Pod, unique, "default")
    assert not left.metadata.HasField("deletionTimestamp")


async def test_the_older_version_of_the_body_is_taken(served: Served, client: Client, unique: str) -> None:
    await new_pod(client, unique, unique)
    body = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": unique}}
    async with served.session.post(path_of(PODS, unique, "eviction"), json=body) as answer:
        assert answer.status == 201
    left = await client.get(Pod, unique, "default")
    assert left.metadata.HasField("deletionTimestamp")


async def test_a_dry_run_in_the_query(served: Served, client: Client, unique: str) -> None:
    await new_pod(client, unique, unique)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": unique}}
    path = path_of(PODS, unique, "eviction")
    async with served.session.post(path, json=body, params={"dryRun": "All"}) as answer:
        assert answer.status == 201
    assert not (await client.get(Pod, unique, "default")).metadata.HasField("deletionTimestamp")


async def test_discovery_names_the_body(served: Served) -> None:
    async with served.session.get("/api/v1") as answer:
        listed = {item["name"]: item for item in (await answer.json())["resources"]}
    assert listed["pods/eviction"] == {
        "name": "pods/eviction",
        "singularName": "",
        "namespaced": True,
        "kind": "Eviction",
        "verbs": ["create"],
        "group": "policy",
        "version": "v1",
    }


async def test_the_client_evicts(client: Client, unique: str) -> None:
    await new_pod(client, unique, unique)
    await client.evict(unique, "default", meta_v1.DeleteOptions(gracePeriodSeconds=0))
    assert isinstance(await refused(client.get(Pod, unique, "default")), errors.NotFound)
