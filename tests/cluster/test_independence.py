"""Each role can be stopped alone: what it does stops, all else goes on, and it catches up when it is back.

And no role can do another's work: no process, volume or key is shared.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import ssl
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.live import Live, docker, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# A lease of 15 s that its dead holder did not give up, the start, and a margin for a busy machine.
SUCCESSION_S = 60.0


def web(name: str, node: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "web", "image": "nginx", "imagePullPolicy": "IfNotPresent"}],
    }
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def apply(live: Live, namespace: str, pod: dict[str, Any]) -> None:
    live.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(pod))


def ready(live: Live, namespace: str, name: str, within_s: float = 60) -> Any:
    live.kubectl("wait", "-n", namespace, "--for=condition=Ready", f"pod/{name}", f"--timeout={within_s:g}s")
    return live.get("pod", name, "-n", namespace)


def heartbeat(live: Live) -> Callable[[], bool]:
    """True once every node has renewed its lease since: time has passed and the nodes are alive."""

    def renewals() -> dict[str, str]:
        items = live.get("lease", "-n", "kube-node-lease")["items"]
        return {item["metadata"]["name"]: item["spec"]["renewTime"] for item in items}

    before = renewals()
    return lambda: all(before.get(node) != at for node, at in renewals().items())


def answers(live: Live, pod: Any) -> bool:
    """From the other node; a container that runs may not listen yet."""
    other = next(node for node in live.workers() if node != pod["spec"]["nodeName"])
    ask = f"curl -s -m 3 http://{pod['status']['podIP']}/ || true"
    return eventually(lambda: "Welcome to nginx!" in live.shell(other, ask), what="no answer")


def test_without_the_scheduler_pods_wait_and_all_else_works(live: Live, namespace: str) -> None:
    with live.stopped("scheduler-1"):
        apply(live, namespace, web("waits"))
        # Bound by hand, so that it needs no scheduler.
        apply(live, namespace, web("placed", live.workers()[0]))
        assert answers(live, ready(live, namespace, "placed"))
        live.kubectl("create", "namespace", f"{namespace}-b")
        live.kubectl("delete", "namespace", f"{namespace}-b", "--timeout=40s")
        live.kubectl("delete", "-n", namespace, "pod", "placed", "--timeout=40s")
        eventually(heartbeat(live), what="heartbeats")
        waits = live.get("pod", "waits", "-n", namespace)
        assert (waits["status"]["phase"], waits["spec"].get("nodeName")) == ("Pending", None)
    ready(live, namespace, "waits", SUCCESSION_S)


def test_without_the_controller_manager_namespaces_stay_bare_and_all_else_works(
    live: Live, namespace: str
) -> None:
    bare = f"{namespace}-bare"
    with live.stopped("controller-manager-1"):
        live.kubectl("create", "namespace", bare)
        apply(live, namespace, web("runs"))
        assert answers(live, ready(live, namespace, "runs"))
        live.kubectl("delete", "-n", namespace, "pod", "runs", "--timeout=40s")
        eventually(heartbeat(live), what="heartbeats")
        assert live.get("serviceaccount,configmap", "-n", bare)["items"] == []
    eventually(
        lambda: [item["kind"] for item in live.get("serviceaccount,configmap", "-n", bare)["items"]],
        lambda kinds: sorted(kinds) == ["ConfigMap", "ServiceAccount"],
        within_s=SUCCESSION_S,
    )
    live.kubectl("delete", "namespace", bare, "--timeout=60s")


@pytest.mark.parametrize("member", [1, 2, 3])
def test_without_one_etcd_member_all_works(live: Live, namespace: str, member: int) -> None:
    with live.stopped(f"etcd-{member}"):
        apply(live, namespace, web("runs"))
        assert answers(live, ready(live, namespace, "runs"))
        live.kubectl("label", "-n", namespace, "pod", "runs", f"without={member}")
        live.kubectl("delete", "-n", namespace, "pod", "runs", "--timeout=40s")

    def healthy() -> bool:
        health = "curl -s -m 2 http://127.0.0.1:2381/health || true"
        return '"true"' in live.shell(live.container(f"etcd-{member}"), health)

    eventually(healthy, what="the member is healthy again")


def test_without_the_api_server_pods_run_on_untouched(live: Live, namespace: str) -> None:
    nodes = live.workers()
    for number, node in enumerate(nodes):
        apply(live, namespace, web(f"web-{number}", node))
    before = [ready(live, namespace, f"web-{number}") for number in range(len(nodes))]
    with live.stopped("apiserver-1"):
        assert all(answers(live, pod) for pod in before)
        # A kubelet that starts without an API server knows no pods: it must touch none.
        [old] = live.pids(nodes[0], "kubelet")
        live.kill(nodes[0], "kubelet")
        eventually(lambda: live.pids(nodes[0], "kubelet"), lambda pids: pids not in ([], [old]))
        health = "curl -s -m 2 http://127.0.0.1:10248/healthz || true"
        eventually(lambda: live.shell(nodes[0], health), lambda text: text.strip() == "ok")
        assert all(answers(live, pod) for pod in before)
    eventually(lambda: live.kubectl("get", "--raw=/readyz", code=None), lambda text: text.strip() == "ok")
    eventually(heartbeat(live), what="heartbeats")
    # The scheduler, the controllers and both kubelets work again.
    live.kubectl("create", "namespace", f"{namespace}-b")
    apply(live, namespace, web("after"))
    ready(live, namespace, "after", SUCCESSION_S)
    live.kubectl("delete", "namespace", f"{namespace}-b", "--timeout=60s")

    def identity(pod: Any) -> tuple[Any, ...]:
        [container] = pod["status"]["containerStatuses"]
        return (pod["metadata"]["uid"], pod["status"]["podIP"], container["containerID"], 0)

    after = [live.get("pod", f"web-{number}", "-n", namespace) for number in range(len(nodes))]
    assert [identity(pod) for pod in after] == [identity(pod) for pod in before]
    assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in after] == [0] * len(nodes)
    assert all(answers(live, pod) for pod in after)


# Who may do what.


def test_no_two_containers_share_processes_or_volumes(live: Live) -> None:
    volumes: Counter[str] = Counter()
    for name in live.containers():
        [found] = json.loads(docker("inspect", name))
        volumes.update(mount["Name"] for mount in found["Mounts"] if mount["Type"] == "volume")
        assert [mount for mount in found["Mounts"] if mount["Type"] == "bind"] == []
        assert found["HostConfig"]["PidMode"] == ""
        assert found["HostConfig"]["NetworkMode"] == live.name
    assert len(volumes) >= 3
    assert set(volumes.values()) == {1}


def private_keys(live: Live, name: str) -> dict[str, str]:
    """Digest -> path of every file with a private key."""
    found = live.shell(
        name,
        "grep -rlsI 'PRIVATE KEY' /etc /root /run /home /var/lib/etcd /var/lib/kubelet | xargs -r sha256sum",
    )
    return dict(line.split(maxsplit=1) for line in found.splitlines())


def test_no_two_containers_share_a_private_key(live: Live) -> None:
    keys = {name: private_keys(live, name) for name in live.containers()}
    holders = Counter(digest for found in keys.values() for digest in found)
    assert all(keys.values())
    assert set(holders.values()) == {1}
    own = {
        hashlib.sha256(path.read_bytes()).hexdigest(): str(path.relative_to(live.state / "pki"))
        for path in (live.state / "pki").rglob("*.key")
    }
    placed = {own[digest]: name for name, found in keys.items() for digest in found}
    server = live.container("apiserver-1")
    assert [name for path, name in placed.items() if "etcd-client" in path] == [server]
    assert {path for path, name in placed.items() if name == server} == {
        "service-account.key",
        *(
            f"{server}/{use}.key"
            for use in ("serving", "etcd-client", "kubelet-client", "front-proxy-client")
        ),
    }
    # Authorities and the administrator stay on the host.
    assert {"ca.key", "etcd-ca.key", "front-proxy-ca.key", "admin.key"}.isdisjoint(placed)


def ask(address: tuple[str, int], path: str, ca: Path, pair: Path | None) -> tuple[int, bytes]:
    """Status and body of a GET over TLS; `pair` is a certificate's path without its suffix."""
    context = ssl.create_default_context(cafile=str(ca))
    if pair is not None:
        context.load_cert_chain(f"{pair}.crt", f"{pair}.key")
    connection = http.client.HTTPSConnection(*address, timeout=10, context=context)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_kubelet_lets_only_the_api_server_in(live: Live) -> None:
    node, pki = live.workers()[0], live.state / "pki"
    [found] = json.loads(docker("inspect", node))
    address = (found["NetworkSettings"]["Networks"][live.name]["IPAddress"], 10250)
    others = {
        "admin": pki / "admin",
        "scheduler": pki / live.container("scheduler-1") / "identity",
        "controller manager": pki / live.container("controller-manager-1") / "identity",
        "kubelet itself": pki / node / "kubelet-client",
        "other kubelet": pki / live.workers()[1] / "kubelet-client",
        "proxy": pki / node / "proxy-client",
    }
    for path in ("/pods", "/containerLogs/default/none/none", "/anything"):
        assert ask(address, path, pki / "ca.crt", None)[0] == 401
        assert {
            who: ask(address, path, pki / "ca.crt", pair)[0] for who, pair in others.items()
        } == dict.fromkeys(others, 403)
    server = pki / live.container("apiserver-1") / "kubelet-client"
    status, body = ask(address, "/pods", pki / "ca.crt", server)
    assert (status, json.loads(body)["kind"]) == (200, "PodList")


def test_without_a_credential_there_is_health_and_nothing_else(live: Live) -> None:
    address, ca = ("127.0.0.1", live.ports()["rest"]), live.state / "pki" / "ca.crt"
    for path in ("/livez", "/readyz", "/healthz", "/version"):
        assert ask(address, path, ca, None)[0] == 200
    for path in ("/api", "/apis", "/api/v1/namespaces", "/openapi/v2", "/metrics", "/nothing"):
        status, body = ask(address, path, ca, None)
        answer = json.loads(body)
        assert (status, answer["kind"], answer["code"], answer["reason"]) == (
            401,
            "Status",
            401,
            "Unauthorized",
        )
