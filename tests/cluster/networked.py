"""Pods that answer and ask, for tests of the network: a program for TCP, UDP and DNS, and commands in it."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tests.cluster.live import Live, docker, eventually

PYTHON = "/opt/podyard/venv/bin/python"
# Where every pod's program listens: TCP, UDP, DNS. The first two may differ from pod to pod.
WEB, TALK, NAMES = 8080, 5000, 5353

# Each answers with its pod's name and the address that the question seems to come from. A question
# `/talk?ADDRESS:PORT` is passed on over a UDP socket that the pod keeps; `/end` ends the program, which else
# ignores that it should.
PROGRAM = """
import asyncio, os, signal, socket, sys
import dns.message, dns.rrset
name, web, talk, names = sys.argv[1], *map(int, sys.argv[2:])
asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asker.setblocking(False)

class Talk(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport
    def datagram_received(self, data, addr):
        self.transport.sendto(f"{name} {addr[0]}".encode(), addr)

class Names(Talk):
    def datagram_received(self, data, addr):
        question = dns.message.from_wire(data)
        answer = dns.message.make_response(question)
        asked = question.question[0].name
        if asked.to_text() == "probe.elsewhere.test.":
            answer.answer.append(dns.rrset.from_text(asked, 5, "IN", "A", "192.0.2.53"))
        else:
            answer.set_rcode(3)
        self.transport.sendto(answer.to_wire(), addr)

async def ask(target):
    host, port = target.split(":")
    loop = asyncio.get_running_loop()
    try:
        asker.connect((host, int(port)))
        await loop.sock_sendall(asker, b"?")
        async with asyncio.timeout(1):
            return (await loop.sock_recv(asker, 100)).decode()
    except OSError as error:  # TimeoutError is one
        return type(error).__name__

async def serve(reader, writer):
    path = (await reader.readline()).decode().split(" ")[1]
    said = f"{name} {writer.get_extra_info('peername')[0]}"
    if path.startswith("/talk?"):
        said = await ask(path.partition("?")[2])
    writer.write(f"HTTP/1.0 200 OK\\r\\nContent-Length: {len(said)}\\r\\n\\r\\n{said}".encode())
    await writer.drain()
    writer.close()
    if path == "/end":
        os._exit(0)

async def main():
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: None)
    await loop.create_datagram_endpoint(Talk, local_addr=("0.0.0.0", talk))
    await loop.create_datagram_endpoint(Names, local_addr=("0.0.0.0", names))
    async with await asyncio.start_server(serve, "0.0.0.0", web) as server:
        await server.serve_forever()

asyncio.run(main())
"""


def answering(
    name: str, node: str, image: str, *, web: int = WEB, talk: int = TALK, **spec: Any
) -> dict[str, Any]:
    """A pod that runs the program; labels `pod: NAME`; keys of `spec` that are a container's go there."""
    ports = [
        {"name": "web", "containerPort": web},
        {"name": "talk", "containerPort": talk, "protocol": "UDP"},
        {"name": "names", "containerPort": NAMES, "protocol": "UDP"},
    ]
    container = {
        "name": "main",
        "image": image,
        "command": [PYTHON, "-c", PROGRAM, name, str(web), str(talk), str(NAMES)],
        "ports": ports,
        "readinessProbe": spec.pop("readinessProbe", {"tcpSocket": {"port": "web"}, "periodSeconds": 1}),
    }
    labels = {"pod": name, **spec.pop("labels", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [container], **spec},
    }


def service(
    name: str, selector: dict[str, str] | None, *ports: dict[str, Any], **spec: Any
) -> dict[str, Any]:
    given = {"selector": selector} if selector else {}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"ports": list(ports), **given, **spec},
    }


HTTP = {"name": "http", "port": 80, "targetPort": "web"}
UDP = {"name": "talk", "port": 53, "targetPort": "talk", "protocol": "UDP"}


@dataclass
class Net:
    """A namespace with such pods."""

    live: Live
    namespace: str
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)

    @cached_property
    def nodes(self) -> list[str]:
        return self.live.workers()

    def kubectl(self, *arguments: str, **options: Any) -> str:
        return self.live.kubectl("-n", self.namespace, *arguments, **options)

    def apply(self, *objects: dict[str, Any]) -> None:
        body = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl("apply", "-f", "-", stdin=body)

    def get(self, *arguments: str) -> Any:
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def label(self, pod: str, *labels: str) -> None:
        self.kubectl("label", "--overwrite", "pod", pod, *labels)

    def running(self, *names: str, condition: str = "Ready") -> None:
        """Waits for pods, which are then known to the methods below."""
        wanted = [f"pod/{name}" for name in names]
        self.kubectl("wait", f"--for=condition={condition}", *wanted, "--timeout=120s", timeout_s=150)
        self.pods.update((name, self.get("pod", name)) for name in names)

    def address(self, pod: str) -> str:
        return str(self.pods[pod]["status"]["podIP"])

    def cluster_ip(self, name: str) -> str:
        return str(self.get("service", name)["spec"]["clusterIP"])

    def node_port(self, name: str) -> int:
        return int(self.get("service", name)["spec"]["ports"][0]["nodePort"])

    def node_address(self, node: str) -> str:
        addresses = self.live.get("node", node)["status"]["addresses"]
        return next(str(entry["address"]) for entry in addresses if entry["type"] == "InternalIP")

    def inside(self, place: str, *command: str, code: int | None = 0) -> str:
        """Output of a command in a pod's container, or on a node when `place` is one."""
        if place in self.nodes:
            return self.live.in_container(place, *command, code=code)
        node = self.pods[place]["spec"]["nodeName"]
        return self.live.in_container(node, *self.command(place, *command), code=code)

    def command(self, pod: str, *command: str) -> list[str]:
        """What runs a command in a pod's container, on the pod's node."""
        [status] = self.pods[pod]["status"]["containerStatuses"]
        ident = status["containerID"].removeprefix("containerd://")
        return ["ctr", "-n", "k8s.io", "task", "exec", "--exec-id", uuid.uuid4().hex, ident, *command]

    def python(self, place: str, program: str, *arguments: str) -> Any:
        """What a program prints as JSON."""
        return json.loads(self.inside(place, PYTHON, "-c", program, *arguments))

    def asks(self, place: str, target: str, times: int = 1) -> set[str]:
        """What new connections to ADDRESS:PORT[/PATH] are answered; `curl: (CODE)` where they fail."""
        script = f"for n in $(seq {times}); do curl -sS -m 2 http://{target} 2>&1; echo; done"
        lines = {line.strip() for line in self.inside(place, "sh", "-c", script).splitlines()} - {""}
        return {line.partition(") ")[0] + ")" if line.startswith("curl: (") else line for line in lines}

    def names(self, place: str, target: str, times: int = 1) -> set[str]:
        """The names of the pods that answer."""
        return {line.partition(" ")[0] for line in self.asks(place, target, times)}

    def talks(self, pod: str, target: str) -> str:
        """What the socket that a pod keeps is answered by UDP."""
        [container] = self.pods[pod]["spec"]["containers"]
        web = container["ports"][0]["containerPort"]
        [said] = self.asks(pod, f"127.0.0.1:{web}/talk?{target}")
        return said

    def endpoints(self, name: str, key: str = "ready") -> set[str]:
        """Pods of a Service's slices that have a condition."""
        slices = self.get("endpointslices", "-l", f"kubernetes.io/service-name={name}")["items"]
        return {
            entry["targetRef"]["name"]
            for item in slices
            for entry in item.get("endpoints") or ()
            if entry["conditions"][key]
        }

    # Rules of a node.

    def verdicts(self, node: str, name: str = "service_ips") -> dict[str, str]:
        """Element -> verdict of one of the table's maps, such as {"10.96.0.1 . tcp . 443": "goto svc_x"}."""
        found = {}
        for row in self.table(node):
            made = row.get("map") or row.get("set") or {}
            if made.get("name") == name:
                for element in made.get("elem", ()):
                    key, verdict = element if isinstance(element, list) else (element, None)
                    words = [str(word) for word in key["concat"]] if isinstance(key, dict) else [str(key)]
                    found[" . ".join(words)] = _verdict(verdict)
        return found

    def table(self, node: str) -> list[dict[str, Any]]:
        """Everything in the node's table, as nft's JSON has it; nothing when there is none."""
        listed = self.live.shell(node, "nft -j list table ip podyard 2>/dev/null || echo '{}'")
        rows: list[dict[str, Any]] = json.loads(listed).get("nftables", [])
        return rows

    def programmed(self, element: str, verdict: str = "", name: str = "service_ips") -> None:
        """Waits until every node has an element, by its beginning, with a verdict by its beginning."""
        for node in self.nodes:
            eventually(
                lambda node=node: self.verdicts(node, name),
                lambda seen: any(k.startswith(element) and v.startswith(verdict) for k, v in seen.items()),
                what=f"{node} has no {element} {verdict} in {name}",
            )


def _verdict(verdict: Any) -> str:
    if not isinstance(verdict, dict):
        return str(verdict or "")
    [(kind, target)] = verdict.items()
    return f"{kind} {target['target']}" if isinstance(target, dict) else str(kind)


def docker_subnet(network: str) -> str:
    """Of one of the engine's networks."""
    return docker("network", "inspect", network, "--format", "{{(index .IPAM.Config 0).Subnet}}").strip()
