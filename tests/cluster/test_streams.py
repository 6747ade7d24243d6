"""exec, attach, cp and port-forward by the real kubectl, in both of its protocols, and by other clients."""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from podyard.api.types import rpc, rpc_core_v1
from podyard.client.grpc_transport import credentials_of
from tests.cluster.kubectls import Kubectl
from tests.cluster.live import Live
from tests.cluster.support import DEADLINE_S, Cluster
from tests.cluster.terminal import Terminal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# How kubectl speaks: WebSocket since 1.31, SPDY before and when told so.
WIRES = {
    "websocket": {},
    "spdy": {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"},
}
wires = pytest.mark.parametrize("wire", WIRES)
MEGABYTE = 1_000_000
READ_LINES = 'while read line; do echo "got $line"; done; echo over; sleep 3600'


def pod(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    plain = {"image": "busybox", "command": ["sleep", "3600"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{**plain, **container} for container in containers],
            **spec,
        },
    }


@pytest.fixture(scope="module")
def kubectl(shared_cluster: Cluster, kubeconfig: Path) -> Iterator[Kubectl]:
    """A namespace with the pods that the tests use."""
    one = Kubectl(shared_cluster, kubeconfig, f"streams-{time.time_ns() % 10**9}")
    one.make_namespace()
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 8080, "targetPort": 80}]},
    }
    listens = {"tcpSocket": {"port": 80}, "periodSeconds": 1}
    pods = [
        pod("box", {"name": "main"}, {"name": "other", "env": [{"name": "WHO", "value": "other"}]}),
        pod("web", {"name": "main", "image": "nginx", "command": [], "readinessProbe": listens}),
        pod("reader", {"name": "main", "stdin": True, "command": ["sh", "-c", READ_LINES]}),
        pod("once", {"name": "main", "command": ["true"]}, restartPolicy="Never"),
        pod("unplaced", {"name": "main"}, nodeSelector={"no": "such"}),
    ]
    shared_cluster.apply(service, *pods, namespace=one.namespace)
    one.run("wait", "--for=condition=Ready", "pod/box", "pod/web", "pod/reader", "--timeout=60s")
    one.run("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/once", "--timeout=60s")
    yield one
    one.remove_namespace()


@wires
@pytest.mark.parametrize("code", [0, 3, 137])
def test_output_stays_apart_and_the_code_comes_back(kubectl: Kubectl, wire: str, code: int) -> None:
    script = f"echo out; echo err >&2; exit {code}"
    done = kubectl.call("exec", "box", "-c", "main", "--", "sh", "-c", script, env=WIRES[wire])
    assert (done.stdout, done.returncode) == (b"out\n", code)
    ends = f"command terminated with exit code {code}\n".encode() if code else b""
    assert done.stderr == b"err\n" + ends


def test_a_command_that_is_killed_ends_with_137(kubectl: Kubectl) -> None:
    done = kubectl.call("exec", "box", "-c", "main", "--", "sh", "-c", "kill -9 $$")
    assert done.returncode == 137


@wires
def test_twenty_megabytes_there_and_back(kubectl: Kubectl, wire: str) -> None:
    """The end of the input ends the command, and not a byte is lost in either direction."""
    data = os.urandom(20 * MEGABYTE)
    done = kubectl.call("exec", "-i", "box", "-c", "main", "--", "cat", env=WIRES[wire], input=data)
    assert done.returncode == 0, done.stderr
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()
    sum_ = kubectl.call("exec", "-i", "box", "-c", "main", "--", "sha256sum", env=WIRES[wire], input=data)
    assert sum_.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


@wires
def test_output_that_is_read_late_is_whole(kubectl: Kubectl, wire: str) -> None:
    """The command has long ended when its output is read: longer than any time-out of a close."""
    script = "seq 1 400000"
    with kubectl.going("exec", "box", "-c", "main", "--", "sh", "-c", script, env=WIRES[wire]) as process:
        time.sleep(12)
        output = process.stdout.read()
        assert process.wait() == 0
    assert output == b"".join(b"%d\n" % number for number in range(1, 400_001))


@wires
def test_a_terminal_has_its_size_and_a_new_one(kubectl: Kubectl, wire: str) -> None:
    command = kubectl.command("exec", "-it", "box", "-c", "main", "--", "sh", env=WIRES[wire])
    terminal = Terminal(command, kubectl.environment, rows=40, columns=100)
    try:
        terminal.expect("# ")
        # A size arrives on its own, before or after what is typed.
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


def test_several_at_once(kubectl: Kubectl) -> None:
    def one(number: int) -> tuple[bytes, int]:
        script = f"cat; exit {number}"
        done = kubectl.call(
            "exec", "-i", "box", "-c", "main", "--", "sh", "-c", script, input=b"%d" % number * 100_000
        )
        return done.stdout, done.returncode

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(one, range(8)))
    assert found == [(b"%d" % number * 100_000, number) for number in range(8)]


def test_the_container_that_is_meant(kubectl: Kubectl) -> None:
    assert kubectl.run("exec", "box", "-c", "other", "--", "sh", "-c", "echo $WHO") == "other\n"
    done = kubectl.call("exec", "box", "--", "sh", "-c", 'echo "<$WHO>"')
    assert (done.stdout, done.returncode) == (b"<>\n", 0)
    assert b'Defaulted container "main" out of: main, other' in done.stderr


@wires
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("none", "--", "true"), r'Error from server \(NotFound\): pods "none" not found'),
        (("box", "-c", "x", "--", "true"), r"container x (is )?not (found|valid) (in|for) pod box"),
        (
            ("once", "--", "true"),
            "cannot exec into a container in a completed pod; current phase is Succeeded",
        ),
        (("unplaced", "--", "true"), "pod unplaced does not have a host assigned"),
        (("box", "-c", "main", "--", "nosuch"), "nosuch.*No such file or directory"),
    ],
)
def test_what_goes_wrong_is_said(kubectl: Kubectl, wire: str, arguments: tuple[str, ...], text: str) -> None:
    done = kubectl.call("exec", *arguments, env=WIRES[wire])
    assert done.returncode != 0
    assert re.search(text, done.stderr.decode()), done.stderr


@wires
def test_attach_hears_and_speaks(kubectl: Kubectl, wire: str) -> None:
    """Two at once: one only listens, and hears what the container makes of what the other says."""
    with (
        kubectl.going("attach", "reader", env=WIRES[wire], stderr=subprocess.DEVNULL) as listener,
        kubectl.going(
            "attach", "-i", "reader", env=WIRES[wire], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as speaker,
    ):
        # A listener that is not there yet hears nothing: say it until both have heard it.
        found: dict[Any, bytes] = {listener: b"", speaker: b""}
        for process in found:
            os.set_blocking(process.stdout.fileno(), False)
        end_s = time.monotonic() + DEADLINE_S
        while not all(f"got from {wire}".encode() in heard for heard in found.values()):
            assert time.monotonic() < end_s, found
            speaker.stdin.write(f"from {wire}\n".encode())
            speaker.stdin.flush()
            time.sleep(0.2)
            for process in found:
                found[process] += process.stdout.read() or b""


def test_run_with_input_ends_as_the_command_does(kubectl: Kubectl) -> None:
    command = ("sh", "-c", "read line; echo got $line; exit 6")
    done = kubectl.call(
        "run", "asked", "--image=busybox", "--restart=Never", "-i", "--rm", "--command", "--", *command,
        input=b"hello\n",
    )  # fmt: skip
    assert done.returncode == 6, done.stderr
    assert b"got hello\n" in done.stdout


@wires
def test_cp_takes_folders_and_big_files_both_ways(kubectl: Kubectl, wire: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "deep" / "er" / "small.txt").write_text("small\n")
    (source / "big").write_bytes(os.urandom(20 * MEGABYTE))
    os.chmod(source / "deep" / "er" / "small.txt", 0o640)
    place = f"/tmp/{wire}"
    kubectl.run("cp", str(source), f"box:{place}", "-c", "main", env=WIRES[wire])
    kubectl.run("cp", f"box:{place}", str(tmp_path / "back"), "-c", "main", env=WIRES[wire])
    kubectl.run("cp", f"box:{place}/big", str(tmp_path / "big"), "-c", "main", env=WIRES[wire])
    back = tmp_path / "back"
    assert sorted(path.relative_to(back) for path in back.rglob("*")) == sorted(
        path.relative_to(source) for path in source.rglob("*")
    )
    assert (back / "deep" / "er" / "small.txt").read_text() == "small\n"
    inside = kubectl.run("exec", "box", "-c", "main", "--", "stat", "-c", "%a", f"{place}/deep/er/small.txt")
    assert inside == "640\n"
    assert (back / "big").read_bytes() == (tmp_path / "big").read_bytes() == (source / "big").read_bytes()
    done = kubectl.call("cp", str(source / "deep"), "box:/proc/none/deep", "-c", "main", env=WIRES[wire])
    assert done.returncode == 1


def fetch(port: int, path: str = "/") -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
        body: bytes = answer.read()
        return body


@wires
@pytest.mark.parametrize("target", [("pod/web", ":80"), ("service/web", ":8080")])
def test_a_port_is_forwarded_for_many_at_once(kubectl: Kubectl, wire: str, target: tuple[str, str]) -> None:
    kubectl.run("exec", "web", "--", "sh", "-c", "seq 1 200000 > /var/www/html/many || true")
    with kubectl.forwarding(*target, env=WIRES[wire]) as (process, (port,)):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            pages = list(pool.map(lambda _: fetch(port), range(40)))
        assert all(b"Welcome to nginx" in page for page in pages)
        assert process.poll() is None


@wires
def test_a_port_that_nobody_listens_on(kubectl: Kubectl, wire: str) -> None:
    """kubectl itself gives up the forward; others to the same pod are not touched."""
    with (
        kubectl.forwarding("pod/web", ":80", env=WIRES[wire]) as (_, (good,)),
        kubectl.forwarding("pod/web", ":81", env=WIRES[wire]) as (broken, (bad,)),
    ):
        assert b"Welcome" in fetch(good)
        with pytest.raises((urllib.error.URLError, ConnectionError, OSError)):
            fetch(bad)
        broken.wait(timeout=30)
        said = broken.stderr.read().decode()
        assert "error forwarding port 81 to pod" in said
        assert "connection refused" in said
        assert b"Welcome" in fetch(good)


def connections(cluster: Cluster) -> dict[str, int]:
    """Open connections of streams: from the API server to kubelets, and to the runtimes' servers."""
    found = {}
    for part in ("apiserver-1", "worker-1", "worker-2"):
        rows = [line.split() for line in cluster.run_in(part, "cat", "/proc/net/tcp").splitlines()[1:]]
        live = [row for row in rows if row[3] == "01"]
        if part == "apiserver-1":
            found[part] = sum(row[2].endswith(":280A") for row in live)
        else:
            found[part] = sum(row[1].startswith("0100007F:") for row in live)
    return found


def at_rest(cluster: Cluster) -> dict[str, int] | None:
    """Open connections while the API server has none to a kubelet."""
    found = connections(cluster)
    return None if found["apiserver-1"] else found


@wires
def test_a_kubectl_that_is_killed_leaves_nothing(kubectl: Kubectl, cluster: Cluster, wire: str) -> None:
    # Those of the tests before end on their own; what is left then is nobody's stream.
    before = cluster.eventually(lambda: at_rest(cluster), "the streams of the tests before to end")
    idle = ("exec", "-i", "box", "-c", "main", "--", "cat")
    with (
        kubectl.going(*idle, env=WIRES[wire], stdin=subprocess.PIPE) as waiting,
        kubectl.going("exec", "box", "-c", "main", "--", "yes", env=WIRES[wire]) as printing,
        kubectl.going("attach", "-i", "reader", env=WIRES[wire], stdin=subprocess.PIPE) as attached,
        kubectl.forwarding("pod/web", ":80", env=WIRES[wire]) as (forwarding, (port,)),
        socket.create_connection(("127.0.0.1", port)) as half,
    ):
        half.sendall(b"GET / HT")
        printing.stdout.read(MEGABYTE)
        waiting.stdin.write(b"x\n")
        waiting.stdin.flush()
        assert waiting.stdout.readline() == b"x\n"
        cluster.eventually(
            lambda: connections(cluster)["apiserver-1"] >= before["apiserver-1"] + 4, "four streams"
        )
        for process in (waiting, printing, attached, forwarding):
            process.send_signal(signal.SIGKILL)
    cluster.eventually(
        lambda: all(count <= before[part] for part, count in connections(cluster).items()),
        "no connection of a stream",
    )
    # The command has heard the end of its input.
    cluster.eventually(
        lambda: "cat" not in kubectl.run("exec", "box", "-c", "main", "--", "ps", "-o", "comm").split(),
        "the end of the command",
    )


def test_a_reader_that_stops_grows_nobody(kubectl: Kubectl, live: Live, cluster: Cluster) -> None:
    def memory_kib() -> list[int]:
        found = []
        for part, process in (("apiserver-1", "apiserver"), ("worker-1", "kubelet"), ("worker-2", "kubelet")):
            for pid in live.pids(f"{cluster.name}-{part}", process):
                status = cluster.run_in(part, "cat", f"/proc/{pid}/status")
                found.append(int(re.search(r"VmRSS:\s+(\d+)", status)[1]))  # type: ignore[index]
        return found

    with kubectl.going("exec", "box", "-c", "main", "--", "yes") as process:
        process.stdout.read(MEGABYTE)
        before = memory_kib()
        time.sleep(5)
        after = memory_kib()
        assert process.stdout.read(MEGABYTE)
    assert len(before) == 3
    assert all(new - old < 16 * 1024 for old, new in zip(before, after, strict=True)), (before, after)


async def test_commands_and_ports_over_grpc(kubectl: Kubectl, live: Live) -> None:
    """Typed messages, through the same runtime."""
    credentials = credentials_of(live.admin_files())
    async with grpc.aio.secure_channel(f"127.0.0.1:{live.ports()['grpc']}", credentials) as channel:

        def call(verb: str, answer: type[Any]) -> Any:
            request = getattr(rpc_core_v1, f"Pod{verb}Request")
            return channel.stream_stream(
                f"/podyard.core.v1.PodService/{verb}",
                request_serializer=request.SerializeToString,
                response_deserializer=answer.FromString,
            )(timeout=60)

        place = {"namespace": kubectl.namespace, "name": "box"}
        options = {"container": "main", "stdin": True, "stdout": True, "command": ["sh", "-c", "cat; exit 3"]}
        command = call("Exec", rpc.CommandOutput)
        await command.write(rpc_core_v1.PodExecRequest(start={**place, "options": options}))
        for _ in range(100):
            await command.write(rpc_core_v1.PodExecRequest(stdin=b"x" * 20_000))
        await command.done_writing()
        said = [answer async for answer in command]
        assert b"".join(answer.stdout for answer in said) == b"x" * 2_000_000
        assert said[-1].status.details.causes[0].message == "3"

        forward = call("PortForward", rpc.ConnectionEvent)
        request = rpc_core_v1.PodPortForwardRequest
        await forward.write(request(start={**place, "name": "web"}))
        asked = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        for connection, port in ((1, 80), (2, 81), (3, 80)):
            await forward.write(request(open={"connection": connection, "port": port}))
            await forward.write(request(data={"connection": connection, "data": asked}))
        found: dict[int, bytes] = {}
        over: set[int] = set()
        while over != {1, 2, 3}:
            event = await forward.read()
            found[event.connection] = found.get(event.connection, b"") + (event.data or event.error.encode())
            if event.WhichOneof("event") != "data":
                over.add(event.connection)
        assert b"Welcome to nginx" in found[1]
        assert b"connection refused" in found[2]
        assert b"Welcome to nginx" in found[3]


# In a process of its own: the library leaves its sockets to the end of it.
PYTHON_COMMANDS = """
import sys
from kubernetes import client, config
from kubernetes.stream import stream

config.load_kube_config(config_file=sys.argv[1])
api, place = client.CoreV1Api(), ("box", sys.argv[2])
options = dict(container="main", stderr=True, stdout=True, tty=False)
script = ["sh", "-c", "echo out; echo err >&2"]
said = stream(api.connect_get_namespaced_pod_exec, *place, command=script, stdin=False, **options)
assert sorted(said.split()) == ["err", "out"], said
script = ["sh", "-c", "read line; echo got $line; echo err >&2; exit 3"]
session = stream(
    api.connect_get_namespaced_pod_exec, *place, command=script, stdin=True, _preload_content=False, **options
)
session.write_stdin("hello\\n")
session.run_forever(timeout=30)
assert session.read_stdout() == "got hello\\n"
assert session.read_stderr() == "err\\n"
assert session.returncode == 3, session.returncode
print("done")
"""
PYTHON_PORTS = """
import sys
from kubernetes import client, config
from kubernetes.stream import portforward

config.load_kube_config(config_file=sys.argv[1])
api = client.CoreV1Api()
forward = portforward(api.connect_get_namespaced_pod_portforward, "web", sys.argv[2], ports="80,81")
connection = forward.socket(80)
connection.settimeout(20)
connection.sendall(b"GET / HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
answer = b""
while b"Welcome to nginx" not in answer:
    part = connection.recv(65536)
    assert part, answer
    answer += part
assert answer.startswith(b"HTTP/1.1 200 OK"), answer
refused = forward.socket(81)
refused.settimeout(20)
assert refused.recv(1) == b""
assert "error forwarding port 81" in str(forward.error(81)), forward.error(81)
print("done")
"""


@pytest.mark.parametrize("script", [PYTHON_COMMANDS, PYTHON_PORTS], ids=["commands", "ports"])
def test_the_official_python_client(kubectl: Kubectl, script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script, str(kubectl.config), kubectl.namespace],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
