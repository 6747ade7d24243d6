"""Tokens of pods: kept, renewed in time, and what their volumes look like."""

from __future__ import annotations

from typing import Any

import pytest

from kubelet.podbuild import HostFacts
from kubelet.projections import SourceError, Sources, common_user, files_of
from kubelet.tokens import TokenManager, renewal_s
from podyard.api import errors, meta
from podyard.api.types import ConfigMap, Pod, Secret, TokenRequest, Volume
from podyard.base import clock

HOST = HostFacts("node-1", "192.0.2.1", 8 << 30, 4000)


class Server:
    """Issues numbered tokens; can be away."""

    def __init__(self) -> None:
        self.asked: list[TokenRequest] = []
        self.away = False

    async def create_token(self, namespace: str, account: str, request: TokenRequest) -> TokenRequest:
        if self.away:
            raise errors.Unavailable("connection refused")
        self.asked.append(request)
        request.status.token = f"{account}-{len(self.asked)}"
        ends_s = clock.now_s() + request.spec.expirationSeconds
        request.status.expirationTimestamp.CopyFrom(meta.time_of(ends_s))
        return request


def pod(name: str = "web", **spec: Any) -> Pod:
    spec = {"serviceAccountName": "robot", "containers": [{"name": "main", "image": "i"}], **spec}
    return Pod(
        metadata={"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {"app": "web"}},
        spec=spec,
    )


@pytest.mark.parametrize(
    ("lifetime_s", "used_s"), [(600, 480), (3607, 2885.6), (86_400, 69_120), (864_000, 86_400)]
)
def test_renewed_at_four_fifths_or_after_a_day(lifetime_s: int, used_s: float) -> None:
    assert renewal_s(1_000_000 + lifetime_s, lifetime_s, 0.0) == pytest.approx(1_000_000 + used_s)
    assert renewal_s(1_000_000 + lifetime_s, lifetime_s, 0.5) == pytest.approx(1_000_000 + used_s - 5)


@pytest.mark.virtual
async def test_a_token_is_asked_for_once_and_renewed_in_time() -> None:
    server = Server()
    manager = TokenManager(server)  # type: ignore[arg-type]
    web = pod()
    assert await manager.get(web, "", 3600) == "robot-1"
    await clock.sleep(2800)
    assert await manager.get(web, "", 3600) == "robot-1"
    assert await manager.get(web, "vault", 3600) == "robot-2"
    await clock.sleep(100)
    assert await manager.get(web, "", 3600) == "robot-3"
    first = server.asked[0].spec
    reference = first.boundObjectRef
    assert (reference.kind, reference.apiVersion, reference.name, reference.uID) == (
        "Pod",
        "v1",
        "web",
        "uid-web",
    )
    assert list(first.audiences) == []
    assert list(server.asked[1].spec.audiences) == ["vault"]
    manager.forget("uid-web")
    assert await manager.get(web, "", 3600) == "robot-4"


@pytest.mark.virtual
async def test_while_the_server_is_away_the_old_token_serves_to_its_end() -> None:
    server = Server()
    manager = TokenManager(server)  # type: ignore[arg-type]
    assert await manager.get(pod(), "", 3600) == "robot-1"
    server.away = True
    await clock.sleep(3590)
    assert await manager.get(pod(), "", 3600) == "robot-1"
    await clock.sleep(20)
    with pytest.raises(errors.Unavailable):
        await manager.get(pod(), "", 3600)


def projected(*sources: Any, **more: Any) -> Volume:
    return Volume(name="all", volumeSource={"projected": {"sources": list(sources), **more}})


class FixedTokens:
    async def get(self, pod: Pod, audience: str, expiration_s: int) -> str:
        return f"token of {pod.spec.serviceAccountName} for {audience or 'the API'} {expiration_s}"

    def forget(self, uid: str) -> None:
        pass


async def lookup(kind: Any, namespace: str, name: str) -> Any:
    known = {
        (ConfigMap, "kube-root-ca.crt"): ConfigMap(data={"ca.crt": "CA"}),
        (Secret, "s"): Secret(data={"password": b"pw", "user": b"me"}),
    }
    return known.get((kind, name))


SOURCES = Sources(lookup, FixedTokens(), HOST)
TOKEN = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}


async def test_a_projection_joins_its_sources() -> None:
    volume = projected(
        TOKEN,
        {
            "configMap": {
                "localObjectReference": {"name": "kube-root-ca.crt"},
                "items": [{"key": "ca.crt", "path": "certs/ca.crt", "mode": 0o400}],
            }
        },
        {"secret": {"localObjectReference": {"name": "s"}}},
        {
            "downwardAPI": {
                "items": [
                    {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}},
                    {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                    {
                        "path": "cpus",
                        "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"},
                    },
                ]
            }
        },
        {"configMap": {"localObjectReference": {"name": "gone"}, "optional": True}},
        defaultMode=0o640,
    )
    files = await files_of(pod(), volume, SOURCES)
    assert files is not None
    assert {path: (file.data, file.mode) for path, file in files.items()} == {
        "token": (b"token of robot for the API 3607", 0o640),
        "certs/ca.crt": (b"CA", 0o400),
        "password": (b"pw", 0o640),
        "user": (b"me", 0o640),
        "namespace": (b"default", 0o640),
        "labels": (b'app="web"', 0o640),
        "cpus": (b"4", 0o640),
    }


async def test_a_downward_volume() -> None:
    items = [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}, "mode": 0o444}]
    volume = Volume(name="down", volumeSource={"downwardAPI": {"items": items}})
    files = await files_of(pod(), volume, SOURCES)
    assert files is not None
    assert (files["name"].data, files["name"].mode) == (b"web", 0o444)


async def test_a_token_is_for_the_one_user_of_the_pod() -> None:
    for spec, mode, user in (
        ({}, 0o644, None),
        ({"securityContext": {"runAsUser": 1000}}, 0o600, 1000),
        ({"securityContext": {"fsGroup": 2000}}, 0o600, None),
    ):
        files = await files_of(pod(**spec), projected(TOKEN), SOURCES)
        assert files is not None
        assert (files["token"].mode, files["token"].user) == (mode, user)


def test_users_that_differ_are_no_common_user() -> None:
    def container(name: str, user: int | None) -> dict[str, Any]:
        context = {} if user is None else {"runAsUser": user}
        return {"name": name, "image": "i", "securityContext": context}

    assert common_user(pod(containers=[container("a", 5), container("b", 5)])) == 5
    assert common_user(pod(containers=[container("a", 5), container("b", 6)])) is None
    assert common_user(pod(containers=[container("a", 5), container("b", None)])) is None
    assert common_user(pod(containers=[container("a", 5)], initContainers=[container("i", 7)])) is None


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ({"configMap": {"localObjectReference": {"name": "gone"}}}, 'configmap "gone" not found'),
        (
            {"secret": {"localObjectReference": {"name": "s"}, "items": [{"key": "no", "path": "p"}]}},
            "references non-existent secret key: no",
        ),
        ({"clusterTrustBundle": {"path": "p"}}, "projections of type clusterTrustBundle are not supported"),
    ],
)
async def test_what_is_missing_is_named(source: Any, text: str) -> None:
    with pytest.raises(SourceError, match=text):
        await files_of(pod(), projected(source), SOURCES)


async def test_a_token_that_cannot_be_had_is_named() -> None:
    class Away(FixedTokens):
        async def get(self, pod: Pod, audience: str, expiration_s: int) -> str:
            raise errors.Forbidden("not today")

    with pytest.raises(SourceError, match="failed to fetch token: not today"):
        await files_of(pod(), projected(TOKEN), Sources(lookup, Away(), HOST))
