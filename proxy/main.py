"""The proxy process: wiring only."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from podyard.base import clock
from podyard.base.config import TlsFiles
from podyard.base.health import HealthServer
from podyard.base.run import Background
from podyard.client.client import Client
from podyard.client.grpc_transport import GrpcTransport, credentials_of
from proxy import apply
from proxy.dns_server import DnsServer
from proxy.model import Network
from proxy.shell import Proxy

# As long as CoreDNS waits for its first names.
_NAMES_WAIT_S = 5.0


@dataclass(frozen=True)
class Config:
    """`/etc/podyard/proxy.yaml`.

    Attributes:
        name: of the node.
        dns_address: where pods ask for names; held on this node's loopback.
        resolver: asked for names that are not the cluster's.
        health_port: serves /healthz; upstream's load balancers ask there.
        metrics_port: serves /metrics, on loopback.
    """

    name: str
    apiservers: list[str]
    tls: TlsFiles
    pod_network: str = "10.244.0.0/16"
    service_network: str = "10.96.0.0/16"
    dns_address: str = "10.96.0.10"
    dns_port: int = 53
    domain: str = "cluster.local"
    resolver: str = "127.0.0.11"
    health_port: int = 10256
    metrics_port: int = 10249
    log_level: str = "info"


async def main(config: Config, stop: asyncio.Event) -> None:
    """Runs until `stop`; rules and routes stay as they are."""
    transport = GrpcTransport(config.apiservers, credentials_of(config.tls), user_agent="kube-proxy")
    network = Network(config.pod_network, config.service_network, config.dns_address)
    proxy = Proxy(Client(transport), config.name, network, domain=config.domain)
    names = DnsServer(lambda: proxy.zone, (config.resolver, 53))
    await asyncio.to_thread(apply.hold_address, config.dns_address)
    ready = {"sync": lambda: None if proxy.synced_at_s else "rules have not been applied yet"}
    health = HealthServer("0.0.0.0", config.health_port, ready=ready)
    figures = HealthServer("127.0.0.1", config.metrics_port, ready=ready)
    await health.start()
    await figures.start()
    try:
        async with Background() as background:
            background.start(proxy.run(), name="proxy")
            background.start(_serve_names(proxy, names, config), name="dns")
            await stop.wait()
    finally:
        await health.stop()
        await figures.stop()
        await transport.close()


async def _serve_names(proxy: Proxy, names: DnsServer, config: Config) -> None:
    """Serves once the names are known; after a while also without, for those that are not the cluster's."""
    try:
        async with clock.real_timeout(_NAMES_WAIT_S):
            await proxy.named.wait()
    except TimeoutError:
        pass
    await names.run(config.dns_address, config.dns_port)
