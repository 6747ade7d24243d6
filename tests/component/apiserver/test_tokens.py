"""Bearer tokens on the real listeners: REST, and gRPC without a client certificate."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from podyard.api import errors
from podyard.api.types import ServiceAccount, TokenRequest, rpc, rpc_core_v1
from podyard.client.grpc_status import DETAILS_KEY, from_details
from tests.component.apiserver.served import Served

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def account(served: Served, namespace: str) -> str:
    """A namespace with an account `robot`; answers its path."""
    for path, kind, name in (
        ("/api/v1/namespaces", "Namespace", namespace),
        (f"/api/v1/namespaces/{namespace}/serviceaccounts", "ServiceAccount", "robot"),
    ):
        body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}
        async with served.session.post(path, json=body) as answer:
            assert answer.status == 201, await answer.text()
    return f"/api/v1/namespaces/{namespace}/serviceaccounts/robot"


async def new_token(served: Served, path: str, **spec: Any) -> dict[str, Any]:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    async with served.session.post(f"{path}/token", json=body) as answer:
        assert answer.status == 201, await answer.text()
        made: dict[str, Any] = await answer.json()
        return made


async def test_a_token_opens_rest(served: Served, unique: str) -> None:
    path = await account(served, unique)
    made = await new_token(served, path)
    assert (made["apiVersion"], made["kind"]) == ("authentication.k8s.io/v1", "TokenRequest")
    headers = {"Authorization": f"Bearer {made['status']['token']}"}
    async with served.anonymous.get(path, headers=headers) as answer:
        assert answer.status == 200
    # The scheme's case does not matter, the token's does.
    lower = {"Authorization": f"bearer {made['status']['token'].lower()}"}
    for wrong in ({"Authorization": "Bearer nonsense"}, lower, {"Authorization": "Basic eDp5"}, {}):
        async with served.anonymous.get(path, headers=wrong) as answer:
            assert answer.status == 401
            status = await answer.json()
            assert (status["kind"], status["message"], status["reason"]) == (
                "Status",
                "Unauthorized",
                "Unauthorized",
            )
    async with served.session.delete(path) as answer:
        assert answer.status == 200
    # Tokens are believed by the cache, which must have seen that the account is gone.
    await served.core.cache.fresh()
    async with served.anonymous.get(path, headers=headers) as answer:
        assert answer.status == 401


async def test_health_needs_no_credential_and_takes_no_wrong_one(served: Served) -> None:
    async with served.anonymous.get("/livez") as answer:
        assert answer.status == 200
    async with served.anonymous.get("/livez", headers={"Authorization": "Bearer nonsense"}) as answer:
        assert answer.status == 401


async def test_impersonation_is_refused(served: Served) -> None:
    headers = {"Impersonate-User": "jane"}
    async with served.session.get("/api/v1/namespaces/default", headers=headers) as answer:
        assert answer.status == 403
        status = await answer.json()
    assert status["message"] == 'users "jane" is forbidden: impersonation is not served'


async def test_a_token_opens_grpc(served: Served, unique: str) -> None:
    await account(served, unique)
    create = served.channel.unary_unary(
        "/podyard.core.v1.ServiceAccountService/CreateToken",
        request_serializer=rpc_core_v1.ServiceAccountCreateTokenRequest.SerializeToString,
        response_deserializer=TokenRequest.FromString,
    )
    request = rpc_core_v1.ServiceAccountCreateTokenRequest(namespace=unique, name="robot")
    token = (await create(request)).status.token
    get = served.token_channel.unary_unary(
        "/podyard.core.v1.ServiceAccountService/Get",
        request_serializer=rpc.GetRequest.SerializeToString,
        response_deserializer=ServiceAccount.FromString,
    )
    wanted = rpc.GetRequest(namespace=unique, name="robot")
    found = await get(wanted, metadata=(("authorization", f"Bearer {token}"),))
    assert found.metadata.name == "robot"
    watch = served.token_channel.unary_stream(
        "/podyard.core.v1.ServiceAccountService/Watch",
        request_serializer=rpc.ListRequest.SerializeToString,
        response_deserializer=rpc_core_v1.ServiceAccountWatchBatch.FromString,
    )
    for call in (
        get(wanted),
        get(wanted, metadata=(("authorization", "Bearer nonsense"),)),
        watch(rpc.ListRequest(namespace=unique)).read(),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        details = refused.value.trailing_metadata()[DETAILS_KEY]
        error = from_details(refused.value.code().value[0], "", details)
        assert isinstance(error, errors.Unauthorized)
