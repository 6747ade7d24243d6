"""kubectl into running pods: logs with all flags, exec, attach, cp, port-forward, debug, proxy.

In depth, and in both protocols: test_streams.py.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import urllib.request

import pytest

from tests.cluster.kubectls import Kubectl
from tests.cluster.samples import pod
from tests.cluster.terminal import Terminal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COUNTS = "i=0; while true; do i=$((i+1)); echo line $i; sleep 1; done"
HEARS = 'echo from a; while read line; do echo "got $line"; done; sleep 3600'


@pytest.fixture(scope="module")
def two(kubectl: Kubectl) -> str:
    """A Deployment of two pods: `hears` and `counts` in each, and an init container `first`."""
    labels = {"app": "two"}
    spec = {
        "terminationGracePeriodSeconds": 0,
        "initContainers": [{"name": "first", "image": "busybox", "command": ["echo", "from first"]}],
        "containers": [
            {"name": "hears", "image": "busybox", "stdin": True, "command": ["sh", "-c", HEARS]},
            {"name": "counts", "image": "busybox", "command": ["sh", "-c", COUNTS]},
        ],
    }
    made = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "two"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    kubectl.run("create", "-f", "-", input=made)
    kubectl.run("rollout", "status", "deployment/two", "--timeout=90s")
    # A container that runs has not spoken yet.
    heard = [(name, "-c", container) for name in pods_of(kubectl) for container in ("hears", "counts")]
    kubectl.cluster.eventually(lambda: all(kubectl.run("logs", *each) for each in heard), "the first lines")
    return "deployment/two"


@pytest.fixture(scope="module")
def web(kubectl: Kubectl) -> str:
    """nginx that listens, and a Service before it on port 8080."""
    probe = {"httpGet": {"port": 80}, "periodSeconds": 1}
    container = {"name": "web", "image": "nginx", "readinessProbe": probe}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    kubectl.run("run", "web", "--image=nginx", f"--overrides={json.dumps({'spec': spec})}")
    kubectl.run("expose", "pod", "web", "--port=8080", "--target-port=80")
    kubectl.run("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
    return "web"


def pods_of(kubectl: Kubectl, app: str = "two") -> list[str]:
    return kubectl.run("get", "pods", "-l", f"app={app}", "-o", "name").split()


def test_logs_of_one_container(kubectl: Kubectl, two: str) -> None:
    one = (pods_of(kubectl, "two")[0], "-c", "counts")
    kubectl.cluster.eventually(lambda: "line 3" in kubectl.run("logs", *one), "three lines")
    assert kubectl.run("logs", *one).splitlines()[:3] == ["line 1", "line 2", "line 3"]
    last = kubectl.run("logs", *one, "--tail=2").splitlines()
    assert len(last) == 2
    assert int(last[1].split()[1]) - int(last[0].split()[1]) == 1
    assert kubectl.run("logs", *one, "--tail=0") == ""
    assert kubectl.run("logs", *one, "--limit-bytes=6") == "line 1"
    recent = kubectl.run("logs", *one, "--since=1s")
    assert "line 1\n" not in recent
    assert kubectl.run("logs", *one, "--since=1h").startswith("line 1\nline 2\n")
    stamps = [line.split(" ") for line in kubectl.run("logs", *one, "--timestamps").splitlines()[:3]]
    assert [line[1:] for line in stamps] == [["line", "1"], ["line", "2"], ["line", "3"]]
    # From the second of the third line on: not the first.
    since = kubectl.run("logs", *one, f"--since-time={stamps[2][0][:19]}Z")
    assert "line 3\n" in since
    assert "line 1\n" not in since
    with kubectl.watching("logs", "-f", *one, "--tail=1") as follow:
        _, line = follow.line_with("line ")
        follow.line_with(f"line {int(line.split()[1]) + 2}")


def test_logs_of_several_containers_and_pods(kubectl: Kubectl, two: str) -> None:
    names = [name.removeprefix("pod/") for name in pods_of(kubectl)]
    output, said = kubectl.both("logs", two)
    assert output.splitlines()[0] == "from a"
    assert re.match(rf"Found 2 pods, using pod/({'|'.join(names)})\n", said)
    assert 'Defaulted container "hears" out of: hears, counts, first (init)' in said
    # In any order: kubectl asks for one after the other as its own map has them.
    whole = kubectl.run("logs", names[0], "--all-containers", "--tail=1").splitlines()
    assert len(whole) == 3
    assert {"from first", "from a"} < set(whole)
    prefixed = kubectl.run("logs", "-l", "app=two", "--all-containers", "--prefix", "--tail=1").splitlines()
    assert {line.split("] ")[0] for line in prefixed} == {
        f"[pod/{name}/{container}" for name in names for container in ("first", "hears", "counts")
    }
    assert f"[pod/{names[1]}/first] from first" in prefixed
    every = kubectl.run("logs", two, "--all-pods", "-c", "first", "--prefix").splitlines()
    assert sorted(every) == sorted(f"[pod/{name}/first] from first" for name in names)
    refused = kubectl.run("logs", "-f", "-l", "app=two", "-c", "counts", "--max-log-requests=1", code=1)
    assert refused == (
        "error: you are attempting to follow 2 log streams, but maximum allowed concurrency is 1, "
        "use --max-log-requests to increase the limit\n"
    )
    follow = ("logs", "-f", "-l", "app=two", "-c", "counts", "--prefix", "--tail=1", "--max-log-requests=2")
    with kubectl.watching(*follow) as following:
        for name in names:
            following.line_with(f"[pod/{name}/counts] line ")
    refused = kubectl.run("logs", names[0], "-c", "none", code=1)
    assert f"container none is not valid for pod {names[0]}" in refused
    refused = kubectl.run("logs", names[0], "-c", "counts", "--previous", code=1)
    assert f'previous terminated container "counts" in pod "{names[0]}" not found' in refused


def test_logs_of_the_instance_before(kubectl: Kubectl) -> None:
    kubectl.run("create", "-f", "-", input=pod("again", "sh", "-c", "echo from $HOSTNAME; exit 1"))
    restarted = "--for=jsonpath={.status.containerStatuses[0].restartCount}=1"
    kubectl.run("wait", restarted, "pod/again", "--timeout=60s")
    assert kubectl.run("logs", "again", "--previous") == "from again\n"
    kubectl.run("delete", "pod", "again", "--now")


def test_exec(kubectl: Kubectl, two: str) -> None:
    script = "echo out; echo err >&2; exit 7"
    done = kubectl.call("exec", two, "-c", "counts", "--", "sh", "-c", script)
    assert (done.stdout, done.returncode) == (b"out\n", 7)
    assert done.stderr == b"err\ncommand terminated with exit code 7\n"
    data = os.urandom(3_000_000)
    into = kubectl.call("exec", "-i", two, "-c", "counts", "--", "sha256sum", input=data)
    assert into.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()
    back = kubectl.call("exec", two, "-c", "counts", "--", "seq", "1", "400000")
    assert back.stdout == b"".join(b"%d\n" % number for number in range(1, 400_001))
    refused = kubectl.run("exec", "none", "--", "true", code=1)
    assert refused == 'Error from server (NotFound): pods "none" not found\n'


def test_exec_on_a_terminal(kubectl: Kubectl, two: str) -> None:
    command = kubectl.command("exec", "-it", two, "-c", "counts", "--", "sh", options="-it")
    terminal = Terminal(command, kubectl.environment, rows=40, columns=100)
    try:
        terminal.expect("# ")
        # Sizes arrive on their own, before or after what is typed.
        until = "while [ \"$(stty size)\" != '{0}' ]; do sleep 0.1; done; echo now-$(stty size)\n"
        terminal.type(until.format("40 100"))
        terminal.expect("now-40 100")
        terminal.resize(50, 120)
        terminal.type(until.format("50 120"))
        terminal.expect("now-50 120")
        terminal.type("exit 5\n")
        assert terminal.wait() == 5
    finally:
        terminal.close()


def test_attach_hears_and_speaks(kubectl: Kubectl, two: str) -> None:
    one = pods_of(kubectl)[0]
    quiet = {"stdin": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    # The end of one who attached is not the end of the container's input.
    for word in (b"hello", b"again"):
        with kubectl.going("attach", "-i", one, "-c", "hears", **quiet) as attached:
            assert attached.stdin is not None
            assert attached.stdout is not None
            attached.stdin.write(word + b"\n")
            attached.stdin.flush()
            assert attached.stdout.readline() == b"got " + word + b"\n"


def test_cp_both_ways(kubectl: Kubectl, two: str) -> None:
    one = pods_of(kubectl)[0].removeprefix("pod/")
    content = os.urandom(1_000_000)
    small = kubectl.file("copied/small.txt", "small\n")
    folder = kubectl.folder / "copied"
    (folder / "big").write_bytes(content)
    kubectl.run("cp", str(folder), f"{one}:/tmp/there", "-c", "counts")
    assert kubectl.run("exec", one, "-c", "counts", "--", "cat", "/tmp/there/small.txt") == "small\n"
    back = kubectl.folder / f"back-{kubectl.namespace}"
    kubectl.run("cp", f"{kubectl.namespace}/{one}:/tmp/there", str(back), "-c", "counts")
    assert {path.name: path.read_bytes() for path in back.iterdir()} == {
        "small.txt": b"small\n",
        "big": content,
    }
    single = kubectl.folder / f"single-{kubectl.namespace}"
    kubectl.run("cp", f"{one}:/tmp/there/big", str(single), "-c", "counts")
    assert single.read_bytes() == content
    refused = kubectl.call("cp", small, f"{one}:/proc/none/small", "-c", "counts")
    assert refused.returncode == 1


def fetch(port: int, path: str = "/") -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
        body: bytes = answer.read()
        return body


@pytest.mark.parametrize("target", [("pod/web", ":80"), ("service/web", ":8080")], ids=["pod", "service"])
def test_a_port_is_forwarded_for_several_at_once(kubectl: Kubectl, web: str, target: tuple[str, str]) -> None:
    with kubectl.forwarding(*target) as (process, (port,)):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            pages = list(pool.map(lambda _: fetch(port), range(12)))
        assert all(b"Welcome to nginx" in page for page in pages)
        assert process.poll() is None


def test_proxy_speaks_for_whoever_asks(kubectl: Kubectl, web: str) -> None:
    with kubectl.watching("proxy", "--port=0") as proxy:
        _, line = proxy.line_with("Starting to serve on 127.0.0.1:")
        port = int(line.rpartition(":")[2])
        path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{web}"
        assert json.loads(fetch(port, path))["metadata"]["name"] == web
        assert json.loads(fetch(port, "/version"))["minor"] == "36"
        watch = f"/api/v1/namespaces/{kubectl.namespace}/pods?watch=1"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{watch}", timeout=20) as events:
            assert json.loads(events.readline())["type"] == "ADDED"


def test_debug_by_a_copy(kubectl: Kubectl, web: str) -> None:
    copied = ("debug", web, "--image=busybox", "--copy-to=copy", "--container=tool", "--profile=general")
    kubectl.run(*copied, "--share-processes", "--set-image=web=nginx:latest", "--", "sleep", "3600")
    kubectl.run("wait", "--for=condition=Ready", "pod/copy", "--timeout=60s")
    spec = kubectl.json("get", "pod", "copy")["spec"]
    assert spec["shareProcessNamespace"] is True
    assert [(item["name"], item["image"]) for item in spec["containers"]] == [
        ("web", "nginx:latest"),
        ("tool", "busybox"),
    ]
    processes = ("exec", "copy", "-c", "tool", "--", "ps")
    kubectl.cluster.eventually(lambda: "nginx: master process" in kubectl.run(*processes), "nginx to be seen")
    kubectl.run("delete", "pod", "copy", "--now")


def test_debug_of_a_running_pod_says_what_is_missing(kubectl: Kubectl, web: str) -> None:
    """Containers that come later are not served yet."""
    refused = kubectl.run("debug", web, "--image=busybox", "--profile=general", code=1)
    assert refused.splitlines()[-1] == (
        "error: ephemeral containers are disabled for this cluster "
        '(error from server: "the server could not find the requested resource")'
    )


def test_debug_of_a_node_sees_the_nodes_files(kubectl: Kubectl) -> None:
    node = f"{kubectl.cluster.name}-worker-1"
    command = ("cat", "/host/etc/hostname")
    said = kubectl.run("debug", f"node/{node}", "--image=busybox", "--profile=general", "--", *command)
    name = re.search(rf"node-debugger-{node}-[a-z0-9]+", said)
    assert name, said
    ended = "--for=jsonpath={.status.phase}=Succeeded"
    kubectl.run("wait", ended, f"pod/{name.group()}", "--timeout=60s")
    assert kubectl.run("logs", name.group()) == f"{node}\n"
    assert kubectl.path(f"pod/{name.group()}", ".spec.nodeName") == node
