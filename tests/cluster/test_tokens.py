"""A pod speaks to the API server with what its service account gives it: token, CA and namespace."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from typing import Any

import grpc
import pytest

from podyard.api.types import ServiceAccount, rpc
from podyard.cluster.spec import IMAGE
from tests.cluster.live import Live, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
# What the in-cluster configuration of every client library does, in lines that need none.
PROGRAM = f"""
import json, os, pathlib, ssl, time, urllib.request
folder = pathlib.Path({FOLDER!r})
context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
token, namespace = (folder / "token").read_text(), (folder / "namespace").read_text()
for host in (os.environ["KUBERNETES_SERVICE_HOST"], "kubernetes.default.svc"):
    url = f"https://{{host}}/api/v1/namespaces/{{namespace}}/pods"
    request = urllib.request.Request(url, headers={{"Authorization": "Bearer " + token}})
    with urllib.request.urlopen(request, context=context, timeout=20) as answer:
        items = json.load(answer)["items"]
    print("SEES", host, sorted(item["metadata"]["name"] for item in items), flush=True)
print("TOKEN", token, flush=True)
time.sleep(3600)
"""


def pod(name: str, **spec: Any) -> dict[str, Any]:
    main = {
        "name": "main",
        "image": IMAGE,
        "command": ["/opt/podyard/venv/bin/python", "-c", PROGRAM],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [main], **spec},
    }


def ask(live: Live, path: str, token: str) -> int:
    """The HTTP code of a request from the host with nothing but a token."""
    context = ssl.create_default_context(cafile=live.admin_files().ca)
    url = f"https://127.0.0.1:{live.ports()['rest']}{path}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, context=context, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def said_by(token: str) -> dict[str, Any]:
    """A token's claims, unverified."""
    part = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return claims


def test_a_pod_calls_the_api_with_its_token(live: Live, namespace: str) -> None:
    live.podyard("push", IMAGE)
    live.kubectl("-n", namespace, "apply", "-f", "-", stdin=json.dumps(pod("caller")))

    def token_line() -> str:
        lines = live.kubectl("-n", namespace, "logs", "caller", code=None).splitlines()
        return next((line for line in lines if line.startswith("TOKEN ")), "")

    token = eventually(token_line, within_s=120).removeprefix("TOKEN ")
    log = live.kubectl("-n", namespace, "logs", "caller")
    assert "SEES 10.96.0.1 ['caller']" in log
    assert "SEES kubernetes.default.svc ['caller']" in log

    made = live.get("pod", "caller", "-n", namespace)
    said = said_by(token)
    assert said["sub"] == f"system:serviceaccount:{namespace}:default"
    assert said["kubernetes.io"]["pod"] == {"name": "caller", "uid": made["metadata"]["uid"]}
    assert said["kubernetes.io"]["node"]["name"] == made["spec"]["nodeName"]

    described = live.kubectl("-n", namespace, "describe", "pod", "caller")
    volume = next(v["name"] for v in made["spec"]["volumes"] if v["name"].startswith("kube-api-access-"))
    assert f"{FOLDER} from {volume} (ro)" in described
    for text in (
        "Projected (a volume that contains injected data from multiple sources)",
        "TokenExpirationSeconds:  3607",
        "ConfigMapName:           kube-root-ca.crt",
        "DownwardAPI:             true",
    ):
        assert text in described

    path = f"/api/v1/namespaces/{namespace}/pods"
    assert ask(live, path, token) == 200
    live.kubectl("-n", namespace, "delete", "pod", "caller")
    # The watch of the API server knows of it a moment later.
    eventually(lambda: ask(live, path, token) == 401)


def test_kubectl_makes_tokens_that_open_rest_and_grpc(live: Live) -> None:
    token = live.kubectl("create", "token", "default", "--duration=20m").strip()
    said = said_by(token)
    assert said["exp"] - said["iat"] == 1200
    assert ask(live, "/api/v1/namespaces/default/serviceaccounts/default", token) == 200
    assert ask(live, "/api/v1/namespaces/default/serviceaccounts/default", token + "x") == 401
    refused = live.kubectl("create", "token", "ghost", code=1)
    assert 'serviceaccounts "ghost" not found' in refused
    refused = live.kubectl("create", "token", "default", "--duration=1m", code=1)
    assert "may not specify a duration less than 10 minutes" in refused

    with open(live.admin_files().ca, "rb") as file:
        credentials = grpc.ssl_channel_credentials(file.read())
    with grpc.secure_channel(f"127.0.0.1:{live.ports()['grpc_token']}", credentials) as channel:
        get = channel.unary_unary(
            "/podyard.core.v1.ServiceAccountService/Get",
            request_serializer=rpc.GetRequest.SerializeToString,
            response_deserializer=ServiceAccount.FromString,
        )
        wanted = rpc.GetRequest(namespace="default", name="default")
        found = get(wanted, metadata=(("authorization", f"Bearer {token}"),), timeout=20)
        assert found.metadata.name == "default"
        with pytest.raises(grpc.RpcError) as error:
            get(wanted, timeout=20)
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_a_pod_of_an_account_that_is_not_there_is_refused(live: Live) -> None:
    refused = live.kubectl(
        "apply", "-f", "-", stdin=json.dumps(pod("orphan", serviceAccountName="ghost")), code=1
    )
    assert (
        'pods "orphan" is forbidden: error looking up service account default/ghost: '
        'serviceaccount "ghost" not found' in refused
    )
