"""The API server process: wiring only."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from apiserver import compaction, event_expiry
from apiserver.core import ApiCore
from apiserver.health import StoreHealth
from apiserver.serve.grpc_server import GrpcServer
from apiserver.serve.rest import RestServer
from apiserver.serve.rest_objects import ObjectHandlers
from apiserver.store.etcd import EtcdStore
from apiserver.store.etcd_wire import Tls
from podyard.base import log
from podyard.base.config import TlsFiles
from podyard.base.pki import SigningKey
from podyard.base.run import Background

_LOGGER = log.get_logger("apiserver")
_DRAIN_S = 3.0


@dataclass(frozen=True)
class EtcdConfig:
    """The store: `host:2379` of each member, and the only key that opens it."""

    endpoints: list[str]
    tls: TlsFiles


@dataclass(frozen=True)
class Config:
    """`/etc/podyard/config.yaml` of an API server.

    Attributes:
        name: of the container.
        tls: serving certificate, and the CA whose client certificates are believed.
        kubelet_client: certificate with which kubelets are called.
        default_toleration_s: how long new pods tolerate a node that is not ready or unreachable.
        etcd_compaction_interval_s: the least history that watches resume in and lists go on in.
        event_ttl_s: how long an event stays after it was told last, by the cluster's clock.
        service_account_key, service_account_public: PEM files; the pair signs service-account tokens.
    """

    name: str
    etcd: EtcdConfig
    tls: TlsFiles
    kubelet_client: TlsFiles | None = None
    host: str = "0.0.0.0"
    rest_port: int = 6443
    grpc_port: int = 6444
    grpc_token_port: int = 6445
    service_cidr: str = "10.96.0.0/16"
    service_ip: str = "10.96.0.1"
    dns_ip: str = "10.96.0.10"
    default_toleration_s: int = 300
    etcd_compaction_interval_s: float = compaction.PERIOD_S
    event_ttl_s: float = event_expiry.TTL_S
    service_account_key: str = "/etc/podyard/pki/service-account.key"
    service_account_public: str = "/etc/podyard/pki/service-account.pub"
    log_level: str = "info"


async def main(config: Config, stop: asyncio.Event) -> None:
    """Serves until `stop`."""
    store = EtcdStore(config.etcd.endpoints, tls=_etcd_tls(config.etcd.tls))
    core = ApiCore(
        store,
        service_cidr=config.service_cidr,
        service_ip=config.service_ip,
        dns_ip=config.dns_ip,
        default_toleration_s=config.default_toleration_s,
        compaction_interval_s=config.etcd_compaction_interval_s,
        event_ttl_s=config.event_ttl_s,
        address=_own_address(config.name),
        port=config.rest_port,
        kubelet_tls=None if config.kubelet_client is None else _kubelet_context(config.kubelet_client),
        token_key=_token_key(config),
    )
    store_health = StoreHealth(store)
    rest = RestServer(
        ObjectHandlers(core.registry, core.authorizer, core.streams),
        core.authorizer,
        tls=_server_context(config.tls),
        live={"etcd": store_health.problem},
        ready={
            "etcd-readiness": store_health.problem,
            "informer-sync": lambda: None if core.cache.ready else "the store has not been listed yet",
            "poststarthook/system-objects": lambda: None if core.bootstrap.done else "not finished",
            "shutdown": lambda: "process is shutting down" if stop.is_set() else None,
        },
        version=metadata.version("podyard"),
        refresh=store_health.refresh,
        bearer=core.registry.tokens.authenticate,
    )
    files = [Path(path).read_bytes() for path in (config.tls.ca, config.tls.cert, config.tls.key)]  # noqa: ASYNC240
    rpc = GrpcServer(
        core.methods, f"{config.host}:{config.grpc_port}", ca=files[0], cert=files[1], key=files[2]
    )
    token_rpc = GrpcServer(
        core.methods,
        f"{config.host}:{config.grpc_token_port}",
        bearer=core.registry.tokens.authenticate,
        cert=files[1],
        key=files[2],
    )
    try:
        async with Background() as background:
            core.start(background)
            await rest.start(config.host, config.rest_port)
            await rpc.start()
            await token_rpc.start()
            _LOGGER.info("serving", rest_port=rest.port, grpc_port=rpc.port, grpc_token_port=token_rpc.port)
            await stop.wait()
            # Watchers get a last bookmark and a clean end, so that they resume elsewhere.
            core.cache.finish_watchers()
            await asyncio.gather(rpc.stop(_DRAIN_S), token_rpc.stop(_DRAIN_S))
            await rest.stop()
    finally:
        await core.close()


def _etcd_tls(files: TlsFiles) -> Tls:
    return Tls(
        ca=Path(files.ca).read_bytes(), cert=Path(files.cert).read_bytes(), key=Path(files.key).read_bytes()
    )


def _token_key(config: Config) -> SigningKey:
    return SigningKey(
        private=Path(config.service_account_key).read_bytes(),
        public=Path(config.service_account_public).read_bytes(),
    )


def _own_address(name: str) -> str:
    """This container's address on the cluster's network."""
    try:
        return socket.gethostbyname(name)
    except OSError:
        return ""


def _server_context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files.ca)
    context.load_cert_chain(files.cert, files.key)
    # Optional at TLS: health needs no credential, everything else answers 401 without one.
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _kubelet_context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=files.ca)
    context.load_cert_chain(files.cert, files.key)
    return context
