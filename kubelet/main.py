"""The kubelet process: wiring only."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from kubelet.endmessages import EndMessages
from kubelet.handlers import NodeHandlers
from kubelet.node import read_machine
from kubelet.nodeagent import NodeAgent, uplink
from kubelet.podbuild import ClusterNetwork, HostFacts
from kubelet.runtime.cri import CriRuntime
from kubelet.server import KubeletServer
from kubelet.shell import Kubelet
from kubelet.tokens import TokenManager
from kubelet.traces import Traces
from kubelet.volumes import PodVolumes
from podyard.api.types import Taint
from podyard.base import log
from podyard.base.config import TlsFiles
from podyard.base.health import HealthServer
from podyard.base.run import Background
from podyard.client.client import Client
from podyard.client.grpc_transport import GrpcTransport, credentials_of
from podyard.client.recorder import Recorder

_LOGGER = log.get_logger("kubelet")


@dataclass(frozen=True)
class TaintConfig:
    """A taint to register with."""

    key: str
    effect: str
    value: str = ""


@dataclass(frozen=True)
class Config:
    """`/etc/podyard/config.yaml` of a kubelet.

    Attributes:
        name: of the node.
        apiservers: `host:port` of gRPC with mutual TLS.
        tls: client certificate of `system:node:NAME`.
        serving: certificate of the kubelet's own server; its CA verifies the API server's.
        labels: of the node, besides its own, when it registers (upstream: --node-labels).
        taints: of the node when it registers (upstream: --register-with-taints), not later.
    """

    name: str
    apiservers: list[str]
    tls: TlsFiles
    serving: TlsFiles
    root: str = "/var/lib/kubelet"
    runtime_socket: str = "/run/containerd/containerd.sock"
    network_directory: str = "/etc/cni/net.d"
    port: int = 10250
    health_port: int = 10248
    cluster_dns: list[str] = field(default_factory=lambda: ["10.96.0.10"])
    cluster_domain: str = "cluster.local"
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[TaintConfig] = field(default_factory=list)
    log_level: str = "info"


async def main(config: Config, stop: asyncio.Event) -> None:
    """Runs until `stop`; pods run on."""
    root = Path(config.root)
    root.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - once, at start
    # In a thread: the netlink library runs a loop of its own.
    address, mtu = await asyncio.to_thread(uplink)
    transport = GrpcTransport(config.apiservers, credentials_of(config.tls), user_agent="kubelet")
    client = Client(transport, field_manager="kubelet")
    # pyroute2's sockets run a loop of their own, which a thread with a running loop cannot.
    runtime = CriRuntime(config.runtime_socket, network_directory=Path(config.network_directory), mtu=mtu)
    recorder = Recorder(client, "kubelet", config.name)
    machine = read_machine(root)
    host = HostFacts(config.name, address, machine.memory_bytes, machine.cpus * 1000)
    network = ClusterNetwork(tuple(config.cluster_dns), config.cluster_domain)
    handlers = NodeHandlers(runtime)
    kubelet = Kubelet(
        config.name,
        client,
        runtime,
        recorder,
        volumes=PodVolumes(root, tokens=TokenManager(client), host=host),
        network=network,
        handlers=handlers,
        traces=Traces(),
        messages=EndMessages(root),
    )
    server = KubeletServer(kubelet, _server_context(config.serving))
    health = HealthServer(
        "127.0.0.1",
        config.health_port,
        ready={
            "pods": lambda: None if kubelet.pods.synced.is_set() else "the node's pods are not listed yet"
        },
    )
    await health.start()
    await server.start("0.0.0.0", config.port)
    agent = NodeAgent(
        kubelet,
        client,
        runtime,
        recorder,
        machine,
        address=address,
        port=server.port,
        labels=config.labels,
        taints=[Taint(key=one.key, value=one.value, effect=one.effect) for one in config.taints],
    )
    try:
        async with Background() as background:
            background.start(recorder.run(), name="events")
            background.start(kubelet.run(), name="kubelet")
            background.start(agent.run(), name="node")
            await stop.wait()
    finally:
        await recorder.flush(1.0)
        await server.stop()
        await health.stop()
        await handlers.close()
        await runtime.close()
        await transport.close()


def _server_context(tls: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tls.ca)
    context.load_cert_chain(tls.cert, tls.key)
    # Optional at TLS, so that a caller without one reads 401 rather than a broken connection.
    context.verify_mode = ssl.CERT_OPTIONAL
    return context
