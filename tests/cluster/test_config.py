"""Two clusters made at the same moment, each from a file: nodes, flags, ports, trust; then one goes."""

from __future__ import annotations

import os
import re
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from podyard.base import clock, pki
from podyard.base.pki import Identity
from podyard.cluster import ports
from tests.cluster.live import Live, docker, eventually
from tests.cluster.terminal import Terminal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HEAD = {"apiVersion": "podyard.io/v1alpha1", "kind": "Cluster"}
TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
# Answers every question with 404, as a registry that lacks the image.
LACKING = """
import http.server, ssl
class Lacking(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()
    do_HEAD = do_GET
server = http.server.ThreadingHTTPServer(("", 5443), Lacking)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/tmp/registry.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""
POD = {"containers": [{"name": "web", "image": "nginx"}], "terminationGracePeriodSeconds": 0}
SERVICE = {"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80, "nodePort": 30080}]}
WEB = (
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}}, "spec": POD},
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": SERVICE},
)


class Pair:
    """The two clusters, the file of the first, and the authority that it trusts."""

    def __init__(self, folder: Path) -> None:
        self.one, self.other = (Live(f"{name}-{os.getpid()}", folder) for name in ("config", "beside"))
        self.file = folder / "lab.yaml"
        self.authority = pki.new_authority("company", now_s=clock.real_now_s())
        (folder / "company-ca.crt").write_bytes(self.authority.certificate)
        self.content: dict[str, Any] = {
            **HEAD,
            "name": self.one.name,
            "nodes": [{"labels": {"zone": "a"}}, {"labels": {"zone": "b"}, "taints": [TAINT]}],
            "controlPlane": {"etcd": 1, "schedulers": 2},
            "components": {"scheduler": {"log_level": "debug"}},
            "publish": [{"node": 2, "containerPort": 30080, "hostPort": free_port()}],
            "extraCAs": ["company-ca.crt"],
        }

    def write(self) -> str:
        """Writes the file; answers its name."""
        self.file.write_text(yaml.safe_dump(self.content))
        return str(self.file)

    def up(self) -> None:
        """Both at the same moment."""
        beside = yaml.safe_dump({**HEAD, "nodes": 1, "controlPlane": {"etcd": 1}})
        with ThreadPoolExecutor() as pool:
            ups = [
                pool.submit(self.one.podyard, "up", "--config", self.write()),
                pool.submit(self.other.podyard, "up", "--config", "-", stdin=beside),
            ]
        assert [up.exception() for up in ups] == [None, None]


def free_port() -> int:
    """Not one that the kernel may give to an outgoing connection before the engine has it."""
    return ports.free_port((), beginning=f"published-{uuid.uuid4().hex}")


def containers(cluster: Live) -> dict[str, str]:
    """Name, without the cluster's -> id."""
    shown = docker(
        *("ps", "--all", "--no-trunc", "--format", "{{.Names}} {{.ID}}"),
        *("--filter", f"label=podyard.cluster={cluster.name}"),
    )
    return dict(line.removeprefix(f"{cluster.name}-").split() for line in shown.splitlines())


def server(cluster: Live) -> str:
    """Where this host reaches its API server."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    return str(config["clusters"][0]["cluster"]["server"])


def fetched(port: int) -> str:
    """What a web server at a port of this host's loopback says; empty where there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=3) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("data"))
    try:
        made.up()
        yield made
    finally:
        for cluster in (made.one, made.other):
            cluster.podyard("down", code=None)
            assert containers(cluster) == {}


def test_each_is_what_its_file_says(pair: Pair) -> None:
    nodes = {node["metadata"]["name"]: node for node in pair.one.get("nodes")["items"]}
    names = [f"{pair.one.name}-worker-{number}" for number in (1, 2)]
    assert sorted(nodes) == names
    assert [nodes[name]["metadata"]["labels"]["zone"] for name in names] == ["a", "b"]
    assert [nodes[name]["spec"].get("taints") for name in names] == [None, [TAINT]]
    (alone,) = pair.other.get("nodes")["items"]
    assert alone["metadata"]["name"] == f"{pair.other.name}-worker-1"
    assert set(containers(pair.one)) == {
        *("etcd-1", "apiserver-1", "controller-manager-1", "scheduler-1", "scheduler-2"),
        *("worker-1", "worker-2"),
    }
    lease = pair.one.get("lease", "kube-scheduler", "-n", "kube-system")
    assert re.match(rf"{pair.one.name}-scheduler-[12]_", lease["spec"]["holderIdentity"])


def test_nothing_of_one_is_the_others(pair: Pair) -> None:
    assert server(pair.one) != server(pair.other)
    both = docker(
        "network", "inspect", pair.one.name, pair.other.name, "--format", "{{(index .IPAM.Config 0).Subnet}}"
    )
    assert len(set(both.split())) == 2
    listed = pair.one.podyard("list")
    for cluster, count in ((pair.one, "2"), (pair.other, "1")):
        (line,) = [line for line in listed.splitlines() if line.startswith(cluster.name)]
        assert line.split()[1] == count
        assert server(cluster) in line


def test_a_node_port_answers_on_the_hosts_loopback(pair: Pair) -> None:
    port = pair.content["publish"][0]["hostPort"]
    pair.one.apply(*WEB)
    pair.one.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
    # The second node keeps out who does not tolerate it, and answers for the pod all the same.
    assert pair.one.get("pod", "web")["spec"]["nodeName"] == f"{pair.one.name}-worker-1"
    eventually(lambda: "Welcome to nginx" in fetched(port), what="the published port")
    told = f"127.0.0.1:{port}/tcp leads to port 30080 of {pair.one.name}-worker-2"
    assert told in pair.one.podyard("status")


def test_containerd_trusts_the_certificates_of_the_file(pair: Pair) -> None:
    node = f"{pair.one.name}-worker-1"
    own = pki.issue(pair.authority, Identity(node, dns_names=(node,)), now_s=clock.real_now_s())
    pair.one.shell(node, 'printf %s "$0" >/tmp/registry.pem', (own.key + own.certificate).decode())
    docker("exec", "--detach", node, "python", "-c", LACKING)
    # A pull that finds nobody there has another complaint.
    asks = "curl -sk -o /dev/null -w '%{http_code}' https://localhost:5443/ || true"
    eventually(lambda: pair.one.shell(node, asks), lambda code: code == "404", what="the registry answers")
    image = {"containers": [{"name": "none", "image": f"{node}:5443/company/none:1"}]}
    pair.one.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "none"}, "spec": {**image, "nodeName": node}}
    )

    def complaint() -> str:
        found = pair.one.get("events", "--field-selector=involvedObject.name=none,reason=Failed")["items"]
        return " ".join(event["message"] for event in found if "pull" in event["message"])

    # Without trust it would be a complaint about the certificate.
    assert "not found" in eventually(complaint, what="the pull's end")
    assert "x509" not in complaint()
    pair.one.kubectl("delete", "pod", "none", "--wait=false")


def test_mistakes_and_taken_ports_are_told_before_anything_is_touched(pair: Pair) -> None:
    before = containers(pair.one)
    taken = {**pair.content["publish"][0], "hostPort": int(server(pair.other).rpartition(":")[2])}
    for change, code, said in (
        ({"nodes": [{"taints": [{**TAINT, "effect": "Foo"}]}]}, 2, "taints[0].effect: Unsupported value"),
        ({"publish": [*pair.content["publish"], taken]}, 3, "cannot be published: Address already in use"),
    ):
        wrong = yaml.safe_dump({**pair.content, **change, "extraCAs": None})
        refused = pair.one.podyard("up", "--config", "-", code=code, stdin=wrong)
        assert said in refused
        assert "hint:" in refused
    assert containers(pair.one) == before


def test_another_file_changes_what_can_be_changed_and_a_plain_up_keeps_it(pair: Pair) -> None:
    before = containers(pair.one)
    port = free_port()
    pair.content["publish"] = [{"node": 2, "containerPort": 30080, "hostPort": port}]
    place = "topology.kubernetes.io/zone"
    pair.content["nodes"] = [{"labels": {"zone": "a"}}, {"labels": {"zone": "c", place: "d"}}]
    said = pair.one.podyard("up", "--config", pair.write())
    after = containers(pair.one)
    assert {name for name in after if after[name] != before[name]} == {"worker-2"}
    assert f"{pair.one.name}-worker-2: a node that is registered keeps its taints" in said
    second = pair.one.get("node", f"{pair.one.name}-worker-2")
    # As upstream: only what a kubelet's default labels are changes on a node that is registered.
    assert (second["metadata"]["labels"]["zone"], second["metadata"]["labels"][place]) == ("b", "d")
    assert second["spec"]["taints"] == [TAINT]
    assert "nothing to do" in pair.one.podyard("up")
    pair.one.apply(*WEB)
    eventually(
        lambda: "Welcome to nginx" in fetched(port), what="the port that is published now", within_s=60
    )


def test_colours_are_for_terminals_only(pair: Pair) -> None:
    command = [sys.executable, "-m", "podyard.cli.main", "list"]
    environment = {**pair.one.environment, "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    for told, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        terminal = Terminal(command, {**environment, **told})
        try:
            line = terminal.expect(rf"{pair.one.name}[^\n]*\n")
            assert ("\x1b[32m7/7" in line) is coloured
            assert "7/7" in line
        finally:
            terminal.close()
    assert "\x1b" not in pair.one.podyard("list")


def test_down_of_one_leaves_the_other(pair: Pair) -> None:
    before = containers(pair.one)
    pair.other.podyard("down")
    assert containers(pair.other) == {}
    assert containers(pair.one) == before
    pair.one.podyard("status")
    assert len(pair.one.get("nodes")["items"]) == 2
    names = [line.split()[0] for line in pair.one.podyard("list").splitlines()]
    assert pair.one.name in names
    assert pair.other.name not in names
