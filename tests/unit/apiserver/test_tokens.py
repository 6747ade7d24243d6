"""Service-account tokens: what they say, and which ones are believed."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jwt
import pytest

from apiserver.auth import tokens
from apiserver.auth.tokens import Bound, Claims, Signer, TokenError, Verifier
from podyard.api import errors, meta
from podyard.api.types import Node, Pod, Secret, ServiceAccount, TokenRequest, meta_v1
from podyard.base import clock, pki
from tests.unit.apiserver.registry_api import Api

NOW_S = 1_800_000_000
KEY = pki.new_signing_key()
CLAIMS = Claims(
    namespace="team",
    account=Bound("robot", "account-uid"),
    audiences=(tokens.ISSUER,),
    issued_s=NOW_S,
    expires_s=NOW_S + 3600,
    token_id="id-1",
    warn_after_s=NOW_S + 1800,
    pod=Bound("web", "pod-uid"),
    node=Bound("node-1", "node-uid"),
)


def parts(token: str) -> list[dict[str, Any]]:
    """Header and claims, read without any library."""
    padded = [part + "=" * (-len(part) % 4) for part in token.split(".")[:2]]
    return [json.loads(base64.urlsafe_b64decode(part)) for part in padded]


def test_a_token_says_what_upstreams_says() -> None:
    header, claims = parts(Signer(KEY).sign(CLAIMS))
    assert header == {"alg": "ES256", "kid": tokens.key_id(KEY.public), "typ": "JWT"}
    assert claims == {
        "aud": ["https://kubernetes.default.svc.cluster.local"],
        "exp": NOW_S + 3600,
        "iat": NOW_S,
        "iss": "https://kubernetes.default.svc.cluster.local",
        "jti": "id-1",
        "kubernetes.io": {
            "namespace": "team",
            "node": {"name": "node-1", "uid": "node-uid"},
            "pod": {"name": "web", "uid": "pod-uid"},
            "serviceaccount": {"name": "robot", "uid": "account-uid"},
            "warnafter": NOW_S + 1800,
        },
        "nbf": NOW_S,
        "sub": "system:serviceaccount:team:robot",
    }


def test_what_was_signed_is_read_back() -> None:
    assert Verifier([pki.new_signing_key().public, KEY.public]).read(Signer(KEY).sign(CLAIMS)) == CLAIMS


def test_a_tokens_user() -> None:
    user = CLAIMS.user()
    assert (user.name, user.uid) == ("system:serviceaccount:team:robot", "account-uid")
    assert user.groups == (
        "system:serviceaccounts",
        "system:serviceaccounts:team",
        "system:authenticated",
    )
    assert user.extra == {
        "authentication.kubernetes.io/credential-id": ("JTI=id-1",),
        "authentication.kubernetes.io/pod-name": ("web",),
        "authentication.kubernetes.io/pod-uid": ("pod-uid",),
        "authentication.kubernetes.io/node-name": ("node-1",),
        "authentication.kubernetes.io/node-uid": ("node-uid",),
    }


def forged() -> Iterator[Any]:
    signed = Signer(KEY).sign(CLAIMS)
    head, body, signature = signed.split(".")
    yield pytest.param("", id="empty")
    yield pytest.param("no.token.here", id="nonsense")
    yield pytest.param(Signer(pki.new_signing_key()).sign(CLAIMS), id="another key")
    other = Signer(KEY).sign(replace(CLAIMS, account=Bound("root", "uid"))).split(".")[1]
    yield pytest.param(f"{head}.{other}.{signature}", id="another body")
    yield pytest.param(f"{head}.{body}.", id="no signature")
    yield pytest.param(Signer(KEY).sign(replace(CLAIMS, audiences=("vault",))), id="another audience")
    headers = {"kid": tokens.key_id(KEY.public)}
    claims = parts(signed)[1]
    yield pytest.param(jwt.encode(claims, None, "none", headers=headers), id="algorithm none")
    # The public key is no secret, so it must not pass as one of a symmetric algorithm.
    symmetric = jwt.encode(claims, "a shared secret of more than 32 bytes", "HS256", headers=headers)
    yield pytest.param(symmetric, id="symmetric")
    for name, changed in (
        ("another issuer", {**claims, "iss": "https://elsewhere"}),
        ("another subject", {**claims, "sub": "system:serviceaccount:kube-system:root"}),
        ("no private claims", {key: value for key, value in claims.items() if key != "kubernetes.io"}),
    ):
        yield pytest.param(jwt.encode(changed, KEY.private, "ES256", headers=headers), id=name)


@pytest.mark.parametrize("token", list(forged()))
def test_forged_tokens_are_refused(token: str) -> None:
    with pytest.raises(TokenError):
        Verifier([KEY.public]).read(token)


@pytest.mark.parametrize("after_s", [-60, 0, 3600, 3660])
def test_valid_times_with_leeway(after_s: int) -> None:
    tokens.check_times(CLAIMS, NOW_S + after_s)


@pytest.mark.parametrize("after_s", [-61, 3661])
def test_invalid_times(after_s: int) -> None:
    with pytest.raises(TokenError):
        tokens.check_times(CLAIMS, NOW_S + after_s)


def test_bound_objects() -> None:
    pod, bound = Pod(metadata={"name": "web", "uid": "u"}), Bound("web", "u")
    tokens.check_bound("pod", bound, pod, NOW_S)
    with pytest.raises(TokenError):
        tokens.check_bound("pod", bound, None, NOW_S)
    with pytest.raises(TokenError):
        tokens.check_bound("pod", Bound("web", "another"), pod, NOW_S)
    pod.metadata.deletionTimestamp.CopyFrom(meta.time_of(NOW_S))
    tokens.check_bound("pod", bound, pod, NOW_S + 60)
    with pytest.raises(TokenError):
        tokens.check_bound("pod", bound, pod, NOW_S + 61)


async def ask(api: Api, name: str = "robot", **spec: Any) -> TokenRequest:
    request = TokenRequest(spec=spec)
    return (await api.registry.tokens.create("default", name, request, meta_v1.CreateOptions())).message


@pytest.fixture
async def robot(api: Api) -> Api:
    await api.create(ServiceAccount(metadata={"name": "robot", "namespace": "default"}))
    return api


async def test_a_request_gets_defaults_and_a_token_that_is_believed(robot: Api) -> None:
    answer = await ask(robot)
    assert answer.spec.expirationSeconds == 3600
    assert list(answer.spec.audiences) == [tokens.ISSUER]
    assert (answer.metadata.name, answer.metadata.namespace) == ("robot", "default")
    left_s = answer.status.expirationTimestamp.seconds - clock.now_s()
    assert 3598 <= left_s <= 3600
    user = await robot.registry.tokens.authenticate(answer.status.token)
    assert user.name == "system:serviceaccount:default:robot"
    assert user.uid == (await robot.get(ServiceAccount, "robot")).message.metadata.uid


@pytest.mark.parametrize(
    ("seconds", "detail"),
    [
        (599, "may not specify a duration less than 10 minutes"),
        ((1 << 32) + 1, "may not specify a duration larger than 2^32 seconds"),
    ],
)
async def test_expiration_has_bounds(robot: Api, seconds: int, detail: str) -> None:
    with pytest.raises(errors.Invalid, match="expirationSeconds") as raised:
        await ask(robot, expirationSeconds=seconds)
    assert detail in raised.value.message


async def test_no_token_of_an_account_that_is_not_there(robot: Api) -> None:
    with pytest.raises(errors.NotFound, match='serviceaccounts "ghost" not found'):
        await ask(robot, "ghost")


async def test_a_pods_token_ends_with_the_pod(robot: Api) -> None:
    await robot.create(Node(metadata={"name": "node-1"}))
    spec = {
        "serviceAccountName": "robot",
        "nodeName": "node-1",
        "containers": [{"name": "web", "image": "web"}],
    }
    pod = (await robot.create(Pod(metadata={"name": "web", "namespace": "default"}, spec=spec))).message
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uID": pod.metadata.uid}
    answer = await ask(robot, boundObjectRef=reference, expirationSeconds=3607)
    claims = parts(answer.status.token)[1]
    # What clients are told is 3607 s; those that never read the file again have a year.
    assert claims["exp"] - claims["iat"] == 365 * 24 * 3600
    assert claims["kubernetes.io"]["warnafter"] - claims["iat"] == 3607
    assert claims["kubernetes.io"]["node"]["name"] == "node-1"
    user = await robot.registry.tokens.authenticate(answer.status.token)
    assert user.extra["authentication.kubernetes.io/pod-name"] == ("web",)
    await robot.delete(Pod, "web", gracePeriodSeconds=0)
    await robot.registry.cache.fresh()
    with pytest.raises(errors.Unauthorized, match="Unauthorized"):
        await robot.registry.tokens.authenticate(answer.status.token)


async def test_references_are_checked(robot: Api) -> None:
    spec = {"containers": [{"name": "web", "image": "web"}]}
    await robot.create(Pod(metadata={"name": "web", "namespace": "default"}, spec=spec))
    secret = (await robot.create(Secret(metadata={"name": "s", "namespace": "default"}))).message
    with pytest.raises(errors.BadRequest, match="different serviceaccount name"):
        await ask(robot, boundObjectRef={"apiVersion": "v1", "kind": "Pod", "name": "web"})
    with pytest.raises(errors.BadRequest, match="object of type apps/v1, Kind=Deployment"):
        await ask(robot, boundObjectRef={"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"})
    with pytest.raises(errors.NotFound, match='pods "gone" not found'):
        await ask(robot, boundObjectRef={"apiVersion": "v1", "kind": "Pod", "name": "gone"})
    wrong = {"apiVersion": "v1", "kind": "Secret", "name": "s", "uID": "other"}
    with pytest.raises(errors.Conflict, match="does not match the UID in record"):
        await ask(robot, boundObjectRef=wrong)
    answer = await ask(robot, boundObjectRef={**wrong, "uID": secret.metadata.uid})
    await robot.registry.tokens.authenticate(answer.status.token)
    await robot.delete(Secret, "s")
    await robot.registry.cache.fresh()
    with pytest.raises(errors.Unauthorized):
        await robot.registry.tokens.authenticate(answer.status.token)


async def test_an_account_made_anew_is_another_account(robot: Api) -> None:
    token = (await ask(robot)).status.token
    await robot.delete(ServiceAccount, "robot")
    await robot.create(ServiceAccount(metadata={"name": "robot", "namespace": "default"}))
    await robot.registry.cache.fresh()
    with pytest.raises(errors.Unauthorized):
        await robot.registry.tokens.authenticate(token)


async def test_a_body_names_the_account_of_the_path(robot: Api) -> None:
    request = TokenRequest(metadata={"name": "other"})
    with pytest.raises(errors.Invalid, match="must match the service account name if specified"):
        await robot.registry.tokens.create("default", "robot", request, meta_v1.CreateOptions())
