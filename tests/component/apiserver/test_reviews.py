"""Reviews over REST and gRPC: who asks, what they may do, whom a token speaks for. Nothing is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from apiserver.auth.authz import Attributes, Decision, Rules
from apiserver.auth.user import UserInfo
from apiserver.store.memory import MemoryStore
from podyard.api import codec, errors, resources
from podyard.api.resources import Resource
from podyard.api.types import Status
from podyard.client.client import rpc_class
from podyard.client.grpc_transport import GrpcTransport
from tests.component.apiserver.served import Certificates, Served, serve
from tests.component.apiserver.test_tokens import account, new_token
from tests.component.apiserver.wires import path_of

pytestmark = pytest.mark.asyncio(loop_scope="session")
BY_KIND = {row.kind: row for row in resources.REVIEWS}
POD = {"namespace": "default", "verb": "get", "resource": "pods", "name": "web"}


async def ask_rest(served: Served, row: Resource, value: dict[str, Any]) -> dict[str, Any]:
    body = {"apiVersion": row.api_version, "kind": row.kind, **value}
    async with served.session.post(path_of(row), json=body) as answer:
        data = await answer.read()
        if answer.status != 201:
            raise errors.from_status(codec.decode_json(data, Status).message)
        found = codec.decode_json(data, row.message, field_validation="Strict")
        assert (found.api_version, found.kind) == (row.api_version, row.kind)
        return codec.to_dict(found.message)


async def ask_grpc(served: Served, row: Resource, value: dict[str, Any]) -> dict[str, Any]:
    transport = GrpcTransport([f"localhost:{served.grpc_port}"], served.credentials)
    try:
        obj = codec.from_dict(value, row.message)
        request = rpc_class(row, "CreateRequest")(namespace="default" if row.namespaced else "", object=obj)
        return codec.to_dict(await transport.call(f"/{row.service}/Create", request, row.message))
    finally:
        await transport.close()


@pytest.fixture(params=[ask_rest, ask_grpc], ids=["rest", "grpc"])
def ask(request: pytest.FixtureRequest, served: Served) -> Any:
    async def asked(kind: str, **value: Any) -> dict[str, Any]:
        before = await served.revision()
        answer: dict[str, Any] = await request.param(served, BY_KIND[kind], value)
        assert await served.revision() == before
        return answer

    return asked


async def refused(work: Any) -> errors.ApiError:
    try:
        await work
    except errors.ApiError as error:
        return error
    raise AssertionError("it was not refused")


async def test_who_asks(ask: Any, certificates: Certificates) -> None:
    user = (await ask("SelfSubjectReview"))["status"]["userInfo"]
    pem = certificates.of("client")[0].read_bytes()
    fingerprint = x509.load_pem_x509_certificate(pem).fingerprint(hashes.SHA256()).hex()
    assert user == {
        "username": "kubernetes-admin",
        "groups": ["system:masters", "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": [f"X509SHA256={fingerprint}"]},
    }


async def test_what_one_may(ask: Any) -> None:
    for spec in ({"resourceAttributes": POD}, {"nonResourceAttributes": {"path": "/healthz", "verb": "get"}}):
        assert (await ask("SelfSubjectAccessReview", spec=spec))["status"] == {"allowed": True}
        assert (await ask("SubjectAccessReview", spec={"user": "jane", **spec}))["status"]["allowed"] is True
    local = {"groups": ["devs"], "resourceAttributes": POD}
    assert (await ask("LocalSubjectAccessReview", spec=local))["status"]["allowed"] is True
    rules = (await ask("SelfSubjectRulesReview", spec={"namespace": "default"}))["status"]
    assert rules == {
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "incomplete": False,
    }


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (
            "SelfSubjectAccessReview",
            {"spec": {}},
            'spec.resourceAttributes: Invalid value: "null": exactly one of nonResourceAttributes or '
            "resourceAttributes must be specified",
        ),
        (
            "SubjectAccessReview",
            {"spec": {"resourceAttributes": POD}},
            'spec.user: Invalid value: "": at least one of user or group must be specified',
        ),
        (
            "LocalSubjectAccessReview",
            {"spec": {"user": "jane", "resourceAttributes": {**POD, "namespace": "other"}}},
            'spec.resourceAttributes.namespace: Invalid value: "other": must match metadata.namespace',
        ),
        (
            "SelfSubjectAccessReview",
            {"metadata": {"name": "a"}, "spec": {"resourceAttributes": POD}},
            "must be empty",
        ),
        ("TokenReview", {"spec": {}}, "token is required for TokenReview in authentication"),
        ("SelfSubjectRulesReview", {"spec": {}}, "no namespace on request"),
    ],
)
async def test_questions_that_are_none(ask: Any, kind: str, value: dict[str, Any], text: str) -> None:
    error = await refused(ask(kind, **value))
    assert text in error.message
    assert error.code in (400, 422)


async def test_tokens(ask: Any, served: Served, unique: str) -> None:
    path = await account(served, unique)
    ours = (await new_token(served, path))["status"]["token"]
    status = (await ask("TokenReview", spec={"token": ours}))["status"]
    assert status["authenticated"] is True
    assert status["user"]["username"] == f"system:serviceaccount:{unique}:robot"
    assert status["user"]["groups"][0] == "system:serviceaccounts"
    assert status["audiences"] == ["https://kubernetes.default.svc.cluster.local"]
    theirs = (await new_token(served, path, audiences=["vault", "other"]))["status"]["token"]
    status = (await ask("TokenReview", spec={"token": theirs, "audiences": ["vault", "more"]}))["status"]
    assert (status["authenticated"], status["audiences"]) == (True, ["vault"])
    for token in (theirs, "nonsense"):
        status = (await ask("TokenReview", spec={"token": token}))["status"]
        assert not status.get("authenticated")
        assert status["error"].startswith("[invalid bearer token, ")
        assert "user" not in status or not status["user"]


@pytest.mark.parametrize("kind", sorted(BY_KIND))
async def test_there_is_nothing_but_create(served: Served, kind: str) -> None:
    path = path_of(BY_KIND[kind])
    for method, end in (
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/a"),
        ("PUT", "/a"),
        ("PATCH", "/a"),
        ("DELETE", "/a"),
    ):
        async with served.session.request(method, path + end, data=b"{}") as answer:
            assert answer.status == 405


class Some:
    """Lets everybody read, and jane do what she likes in her namespace."""

    def authorize(self, attributes: Attributes) -> Decision:
        if attributes.resource.endswith("reviews") or attributes.verb == "get":
            return Decision(True)
        allowed = (attributes.user.name, attributes.namespace) == ("jane", "janes")
        return Decision(allowed, "" if allowed else "only jane")

    def rules(self, user: UserInfo, namespace: str) -> Rules:
        return Rules(((("get",), ("",), ("pods",), ("web",)),), (), incomplete=True)


@pytest_asyncio.fixture(loop_scope="session")
async def picky(certificates: Certificates) -> AsyncIterator[Served]:
    async with serve(MemoryStore(), certificates, authorizer=Some()) as running:
        yield running


async def test_the_authorizer_is_asked(picky: Served) -> None:
    def attributes(verb: str, namespace: str) -> dict[str, Any]:
        return {"resourceAttributes": {"verb": verb, "namespace": namespace, "resource": "pods"}}

    own = BY_KIND["SelfSubjectAccessReview"]
    for ask_ in (ask_rest, ask_grpc):
        assert (await ask_(picky, own, {"spec": attributes("get", "a")}))["status"] == {"allowed": True}
        no = (await ask_(picky, own, {"spec": attributes("delete", "janes")}))["status"]
        assert no == {"allowed": False, "reason": "only jane"}
        theirs = {"spec": {"user": "jane", **attributes("delete", "janes")}}
        assert (await ask_(picky, BY_KIND["SubjectAccessReview"], theirs))["status"]["allowed"] is True
        rules = await ask_(picky, BY_KIND["SelfSubjectRulesReview"], {"spec": {"namespace": "a"}})
        assert rules["status"] == {
            "resourceRules": [
                {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["web"]}
            ],
            "nonResourceRules": None,
            "incomplete": True,
        }
