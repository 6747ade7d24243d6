"""The real kubectl, verb by verb, on a real cluster; and what it and gRPC clients see of each other."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podyard.api import resources
from podyard.api.types import ConfigMap
from podyard.base.config import TlsFiles
from podyard.client.client import Client
from podyard.client.grpc_transport import GrpcTransport, credentials_of
from tests.cluster.samples import pod
from tests.cluster.support import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

TYPED = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "typed"}, "data": {"a": "1"}}


class Kubectl:
    """kubectl in one namespace, with the cluster's kubeconfig."""

    def __init__(self, cluster: Cluster, config: Path, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.environment = cluster.environment | {"KUBECONFIG": str(config)}

    def run(
        self, *arguments: str, code: int = 0, input: Any = None, env: dict[str, str] | None = None
    ) -> str:
        """Output; with another code than 0 what it said of the failure."""
        done = subprocess.run(
            ["kubectl", "-n", self.namespace, *arguments],
            env=self.environment | (env or {}),
            input=input if input is None or isinstance(input, str) else json.dumps(input),
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout if code == 0 else done.stderr

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "-o", "json"))

    def watching(self, *arguments: str) -> Watching:
        return Watching(["kubectl", "-n", self.namespace, *arguments], self.environment)


class Watching:
    """A kubectl that goes on; its lines with the moment they came."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        )
        self._lines: list[tuple[float, str]] = []
        self._more = threading.Condition()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._more:
                self._lines.append((time.monotonic(), line.rstrip("\n")))
                self._more.notify_all()

    def line_with(self, text: str, timeout_s: float = 30.0) -> tuple[float, str]:
        """The first line that holds a text."""

        def found() -> tuple[float, str] | None:
            return next((entry for entry in self._lines if text in entry[1]), None)

        with self._more:
            assert self._more.wait_for(found, timeout_s), f"no {text!r} in {self._lines}"
            entry = found()
            assert entry is not None
            return entry

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, *failure: object) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module")
def config(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    shared_cluster.podyard("up")
    path = Path(tmp_path_factory.mktemp("kubectl") / "kubeconfig")
    path.write_text(shared_cluster.podyard("kubeconfig").stdout)
    return path


@pytest.fixture(scope="module")
def kubectl(shared_cluster: Cluster, config: Path) -> Iterator[Kubectl]:
    """A namespace for the module."""
    name = f"kubectl-{time.time_ns() % 10**9}"
    one = Kubectl(shared_cluster, config, name)
    one.run("create", "namespace", name)
    shared_cluster.eventually(
        lambda: one.run("get", "serviceaccounts", "--ignore-not-found", "default"), "service account"
    )
    yield one
    one.run("delete", "namespace", name, "--timeout=80s")


@pytest.fixture(scope="module")
def web(kubectl: Kubectl) -> str:
    """A running pod that writes a numbered line a second."""
    loop = "i=0; while true; do i=$((i+1)); echo line $i; sleep 1; done"
    kubectl.run("create", "-f", "-", input=pod("web", "sh", "-c", loop))
    kubectl.run("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
    return "web"


def test_get_in_every_form(kubectl: Kubectl, web: str) -> None:
    head, row = kubectl.run("get", "pods").splitlines()
    assert head.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row.split()[:4] == [web, "1/1", "Running", "0"]
    head, row = kubectl.run("get", "pods", "-o", "wide").splitlines()
    assert head.split()[5:7] == ["IP", "NODE"]
    value = kubectl.json("get", "pod", web)
    assert row.split()[5:7] == [value["status"]["podIP"], value["spec"]["nodeName"]]
    assert "kind: Pod\n" in kubectl.run("get", "pod", web, "-o", "yaml")
    assert kubectl.run("get", "pod", web, "-o", "jsonpath={.status.phase}") == "Running"
    assert kubectl.run("get", "pod", web, "-o", "name") == f"pod/{web}\n"
    columns = kubectl.run("get", "pods", "-o", "custom-columns=N:.metadata.name", "--no-headers")
    assert columns.split() == [web]
    everywhere = kubectl.run("get", "pods", "-A").splitlines()
    assert everywhere[0].split()[:2] == ["NAMESPACE", "NAME"]
    assert any(line.split()[:2] == [kubectl.namespace, web] for line in everywhere)
    assert kubectl.run("get", "pods", "-l", "app=web", "--no-headers").split()[0] == web
    assert kubectl.run("get", "pods", "-l", "app notin (web)", "--no-headers") == ""
    assert kubectl.run("get", "pods", "--field-selector", "status.phase=Running", "--no-headers") != ""
    assert kubectl.run("get", "pods", "--show-labels").splitlines()[1].endswith("app=web")
    assert kubectl.run("get", "pods", "--sort-by=.metadata.name", "--chunk-size=1").count(web) == 1
    assert "pod/web" in kubectl.run("get", "all")
    assert 'pods "none" not found' in kubectl.run("get", "pod", "none", code=1)
    assert 'the server doesn\'t have a resource type "foos"' in kubectl.run("get", "foos", code=1)


def test_get_of_every_kind(kubectl: Kubectl) -> None:
    for row in resources.RESOURCES:
        kubectl.run("get", row.qualified, "-A")
        for name in row.short_names:
            kubectl.run("get", name, "-A", "-o", "name")


def test_apply(kubectl: Kubectl) -> None:
    assert kubectl.run("apply", "-f", "-", input=TYPED) == "configmap/typed created\n"
    assert kubectl.run("apply", "-f", "-", input=TYPED) == "configmap/typed unchanged\n"
    changed = TYPED | {"data": {"b": "2"}}
    kubectl.run("diff", "-f", "-", input=changed, code=1)
    assert kubectl.run("apply", "-f", "-", input=changed) == "configmap/typed configured\n"
    assert kubectl.json("get", "configmap", "typed")["data"] == {"b": "2"}
    refused = kubectl.run("apply", "--server-side", "-f", "-", input=changed, code=1)
    assert "the body of the request was in an unknown format - accepted media types include" in refused
    dry = kubectl.run("apply", "--dry-run=server", "-f", "-", input=TYPED)
    assert dry == "configmap/typed configured (server dry run)\n"
    assert kubectl.json("get", "configmap", "typed")["data"] == {"b": "2"}


def test_a_typo_is_said(kubectl: Kubectl) -> None:
    typo = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "typo"}}
    typo["spec"] = {"containers": [{"name": "main", "imagee": "busybox", "image": "busybox"}]}
    refused = kubectl.run("apply", "-f", "-", input=typo, code=1)
    assert 'strict decoding error: unknown field "spec.containers[0].imagee"' in refused
    warned = subprocess.run(
        ["kubectl", "-n", kubectl.namespace, "apply", "--validate=warn", "--dry-run=server", "-f", "-"],
        env=kubectl.environment,
        input=json.dumps(typo),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert 'Warning: unknown field "spec.containers[0].imagee"' in warned.stderr
    invalid = pod("Bad!", restartPolicy="Maybe")
    refused = kubectl.run("create", "-f", "-", input=invalid, code=1)
    assert "* metadata.name: Invalid value" in refused
    assert '* spec.restartPolicy: Unsupported value: "Maybe"' in refused


def test_create_by_generators(kubectl: Kubectl) -> None:
    assert kubectl.run("create", "configmap", "made", "--from-literal=a=1") == "configmap/made created\n"
    assert kubectl.run("create", "secret", "generic", "made", "--from-literal=a=1") == "secret/made created\n"
    assert kubectl.run("create", "serviceaccount", "made") == "serviceaccount/made created\n"
    assert kubectl.run("create", "service", "clusterip", "made", "--tcp=80") == "service/made created\n"
    assert kubectl.json("get", "service", "made")["spec"]["clusterIP"].startswith("10.96.")
    refused = kubectl.run("create", "configmap", "made", code=1)
    assert 'configmaps "made" already exists' in refused
    everything = kubectl.run("delete", "configmap/made", "secret/made", "serviceaccount/made", "service/made")
    assert everything.count("deleted") == 4


def test_patch_label_annotate_edit_replace(kubectl: Kubectl, web: str) -> None:
    kubectl.run("patch", "pod", web, "-p", '{"metadata":{"labels":{"one":"strategic"}}}')
    kubectl.run("patch", "pod", web, "--type=merge", "-p", '{"metadata":{"labels":{"two":"merge"}}}')
    operation = '[{"op":"add","path":"/metadata/labels/three","value":"json"}]'
    kubectl.run("patch", "pod", web, "--type=json", "-p", operation)
    assert kubectl.run("label", "pod", web, "four=label") == f"pod/{web} labeled\n"
    assert "already has a value" in kubectl.run("label", "pod", web, "four=other", code=1)
    kubectl.run("label", "pod", web, "four=other", "--overwrite")
    kubectl.run("annotate", "pod", web, "five=annotated")
    edited = kubectl.run("edit", "pod", web, env={"EDITOR": "sed -i s/other/edited/"})
    assert edited == f"pod/{web} edited\n"
    metadata = kubectl.json("get", "pod", web)["metadata"]
    assert metadata["labels"] == {
        "app": "web", "one": "strategic", "two": "merge", "three": "json", "four": "edited"
    }  # fmt: skip
    assert metadata["annotations"]["five"] == "annotated"
    kubectl.run("label", "pod", web, "one-", "two-", "three-", "four-")
    refused = kubectl.run("patch", "pod", web, "-p", '{"spec":{"hostNetwork":true}}', code=1)
    assert "pod updates may not change fields other than" in refused
    value = kubectl.json("get", "pod", web)
    value["metadata"]["annotations"]["six"] = "replaced"
    assert kubectl.run("replace", "-f", "-", input=value) == f"pod/{web} replaced\n"
    assert "the object has been modified" in kubectl.run("replace", "-f", "-", input=value, code=1)


def test_describe_and_events(kubectl: Kubectl, web: str) -> None:
    text = kubectl.run("describe", "pod", web)
    for part in ("Node:", "QoS Class:", "node.kubernetes.io/not-ready:NoExecute op=Exists for 300s"):
        assert part in text, text
    reasons = [text.find(reason) for reason in ("Scheduled ", "Pulling ", "Pulled ", "Created ", "Started ")]
    assert -1 not in reasons
    assert reasons == sorted(reasons)
    events = kubectl.run("events", "--for", f"pod/{web}")
    assert "Scheduled" in events
    assert "Started" in events
    node = kubectl.json("get", "pod", web)["spec"]["nodeName"]
    described = kubectl.run("describe", "node", node)
    assert "Allocated resources:" in described
    assert kubectl.namespace in described
    for kind in ("namespace", "service", "configmap", "serviceaccount"):
        kubectl.run("describe", kind)


def test_logs(kubectl: Kubectl, web: str) -> None:
    kubectl.cluster.eventually(lambda: "line 3" in kubectl.run("logs", web), "three lines")
    lines = kubectl.run("logs", web).splitlines()
    assert lines[:3] == ["line 1", "line 2", "line 3"]
    assert len(kubectl.run("logs", web, "--tail=2").splitlines()) == 2
    assert "line 1\n" not in kubectl.run("logs", web, "--since=1s")
    stamped = kubectl.run("logs", web, "--timestamps", "--tail=1").split(" ", 1)
    assert stamped[0].endswith("Z")
    assert stamped[1].startswith("line ")
    assert kubectl.run("logs", web, "--limit-bytes=4") == "line"
    assert kubectl.run("logs", "-l", "app=web", "--tail=1").startswith("line ")
    assert "container none is not valid for pod web" in kubectl.run("logs", web, "-c", "none", code=1)
    refused = kubectl.run("logs", web, "--previous", code=1)
    assert 'previous terminated container "main" in pod "web" not found' in refused
    with kubectl.watching("logs", "-f", web, "--tail=1") as follow:
        _, first = follow.line_with("line ")
        number = int(first.split()[1])
        follow.line_with(f"line {number + 2}", timeout_s=10)


def test_logs_of_the_instance_before(kubectl: Kubectl) -> None:
    kubectl.run("create", "-f", "-", input=pod("again", "sh", "-c", "echo from $HOSTNAME; date +%N; exit 1"))

    def restarted() -> bool:
        statuses = kubectl.json("get", "pod", "again")["status"].get("containerStatuses", [])
        return bool(statuses) and statuses[0]["restartCount"] > 0

    kubectl.cluster.eventually(restarted, "a restart")
    assert kubectl.run("logs", "again", "--previous").startswith("from again\n")
    kubectl.run("delete", "pod", "again", "--now")


def test_delete(kubectl: Kubectl) -> None:
    stubborn = pod("stubborn", "sh", "-c", "trap '' TERM; while true; do sleep 0.2; done")
    for name in ("first", "second"):
        kubectl.run("create", "-f", "-", input=pod(name))
    kubectl.run("create", "-f", "-", input=stubborn)
    kubectl.run(
        "wait", "--for=condition=Ready", "pod", "-l", "app in (first,second,stubborn)", "--timeout=60s"
    )
    started = time.monotonic()
    deleted = kubectl.run("delete", "pod", "stubborn", "--grace-period=3")
    assert f'pod "stubborn" deleted from {kubectl.namespace} namespace\n' == deleted
    assert 2.5 < time.monotonic() - started < 20
    kubectl.run("delete", "pod", "first", "--wait=false")
    kubectl.run("wait", "--for=delete", "pod/first", "--timeout=30s")
    kubectl.run("delete", "pod", "second", "--force", "--grace-period=0")
    assert 'pods "second" not found' in kubectl.run("get", "pod", "second", code=1)
    assert 'pods "second" not found' in kubectl.run("delete", "pod", "second", code=1)
    kubectl.run("delete", "pod", "second", "--ignore-not-found")


def test_wait(kubectl: Kubectl, web: str) -> None:
    kubectl.run("wait", "--for=jsonpath={.status.phase}=Running", f"pod/{web}", "--timeout=10s")
    assert "timed out waiting" in kubectl.run(
        "wait", "--for=condition=No", f"pod/{web}", "--timeout=1s", code=1
    )
    kubectl.run("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=10s")


def test_what_the_server_says_of_itself(kubectl: Kubectl) -> None:
    lines = kubectl.run("api-resources", "--no-headers").splitlines()
    assert {line.split()[0] for line in lines} >= {row.plural for row in resources.RESOURCES}
    assert any(line.split() == ["nodes", "no", "v1", "false", "Node"] for line in lines)
    assert {"v1", "coordination.k8s.io/v1", "events.k8s.io/v1"} <= set(kubectl.run("api-versions").split())
    assert "Server Version: v1.36.0" in kubectl.run("version")
    assert "Kubernetes control plane" in kubectl.run("cluster-info")
    explained = kubectl.run("explain", "pod.spec.containers.image")
    assert "FIELD: image <string>" in explained
    assert "KIND:       Lease" in kubectl.run("explain", "lease")
    kubectl.run("explain", "pods", "--recursive")
    assert kubectl.run("get", "--raw", "/readyz") == "ok"
    assert f"podyard-{kubectl.cluster.name}" in kubectl.run("config", "get-contexts", "-o", "name")


async def _over_grpc(cluster: Cluster, work: Any) -> Any:
    folder = cluster.data / "podyard" / cluster.name / "pki"
    tls = TlsFiles(ca=str(folder / "ca.crt"), cert=str(folder / "admin.crt"), key=str(folder / "admin.key"))
    ports = cluster.container("apiserver-1").attrs["NetworkSettings"]["Ports"]["6444/tcp"]
    transport = GrpcTransport([f"127.0.0.1:{ports[0]['HostPort']}"], credentials_of(tls))
    try:
        return await work(Client(transport))
    finally:
        await transport.close()


def test_kubectl_sees_what_grpc_makes_at_once(kubectl: Kubectl) -> None:
    with kubectl.watching("get", "configmaps", "-w", "--output-watch-events") as watch:
        watch.line_with("kube-root-ca.crt")
        obj = ConfigMap(metadata={"name": "over-grpc", "namespace": kubectl.namespace})

        async def create(client: Client) -> float:
            await client.create(obj)
            return time.monotonic()

        made = asyncio.run(_over_grpc(kubectl.cluster, create))
        seen, line = watch.line_with("over-grpc")
        assert line.split()[:2] == ["ADDED", "over-grpc"]
        assert seen - made < 1.0


def test_grpc_sees_what_kubectl_makes_at_once(kubectl: Kubectl) -> None:
    async def watch(client: Client) -> str:
        listed = await client.list(ConfigMap, kubectl.namespace)
        creating = asyncio.ensure_future(
            asyncio.to_thread(kubectl.run, "create", "configmap", "over-rest", "--from-literal=a=1")
        )
        async with asyncio.timeout(30):
            async for batch in client.watch(
                ConfigMap, kubectl.namespace, resource_version=listed.resource_version
            ):
                for event in batch.events:
                    if event.object.metadata.name == "over-rest":
                        # kubectl prints after it has its answer: the event must not need it to end.
                        await creating
                        return event.type
        raise AssertionError("the watch ended")

    assert asyncio.run(_over_grpc(kubectl.cluster, watch)) == "ADDED"


def test_watch_shows_a_pods_whole_life(kubectl: Kubectl) -> None:
    with kubectl.watching("get", "pods", "-w", "--output-watch-events", "-l", "app=life") as watch:
        kubectl.run("create", "-f", "-", input=pod("life"))
        watch.line_with("ADDED")
        watch.line_with("Running", timeout_s=60)
        kubectl.run("delete", "pod", "life")
        watch.line_with("DELETED")
