"""An API server's real listeners on loopback, with mutual TLS, for the tests' own loop."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import grpc

from apiserver.auth.authz import Authorizer
from apiserver.auth.user import RequestContext, UserInfo
from apiserver.core import ApiCore
from apiserver.health import StoreHealth
from apiserver.serve.grpc_server import GrpcServer
from apiserver.serve.rest import RestServer
from apiserver.serve.rest_objects import ObjectHandlers
from apiserver.store.base import Store
from podyard.api import errors, resources
from podyard.api.types import ServiceAccount, meta_v1
from podyard.base import pki
from podyard.base.run import Background

_READY_S = 30.0


@dataclass(frozen=True)
class Certificates:
    """PEM files of one authority: its own, the server's, and a client's."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    def of(self, name: str) -> tuple[Path, Path]:
        return self.folder / f"{name}.crt", self.folder / f"{name}.key"


def make_certificates(folder: Path) -> Certificates:
    now_s = time.time()
    authority = pki.new_authority("podyard-test", now_s=now_s)
    (folder / "ca.crt").write_bytes(authority.certificate)
    identities = {
        "server": pki.Identity("kube-apiserver", dns_names=("localhost",), addresses=("127.0.0.1",)),
        "client": pki.Identity("kubernetes-admin", ("system:masters",)),
        "node": pki.Identity("system:node:node-1", ("system:nodes",), dns_names=("node-1",)),
        "kubelet-client": pki.Identity("kube-apiserver-kubelet-client", ("system:masters",)),
    }
    for name, identity in identities.items():
        pair = pki.issue(authority, identity, now_s=now_s)
        (folder / f"{name}.crt").write_bytes(pair.certificate)
        (folder / f"{name}.key").write_bytes(pair.key)
    return Certificates(folder)


@dataclass(frozen=True)
class Served:
    """A running API server.

    Attributes:
        session: HTTPS with the client's certificate, `anonymous` without one.
        channel: gRPC with the client's certificate.
        token_channel: gRPC to the listener for bearer tokens.
        stop_rest: ends the REST listener, as the process does at its end.
    """

    core: ApiCore
    store: Store
    rest_port: int
    grpc_port: int
    certificates: Certificates
    session: aiohttp.ClientSession
    anonymous: aiohttp.ClientSession
    credentials: grpc.ChannelCredentials
    channel: grpc.aio.Channel
    token_channel: grpc.aio.Channel
    stop_rest: Callable[[], Awaitable[None]]

    async def revision(self) -> int:
        """The store's revision: the same number again means that nothing was written."""
        return await self.store.current_revision()


async def _until_ready(core: ApiCore) -> None:
    """Waits for the system's objects, and makes the one that a controller would make.

    Past the authorizer, and there already where two servers share a store.
    """
    async with asyncio.timeout(_READY_S):
        while not core.bootstrap.done:  # noqa: ASYNC110 - a state of the product, not an event
            await asyncio.sleep(0.01)
    context = RequestContext(UserInfo("system:controller", ("system:masters",)))
    account = ServiceAccount(metadata={"name": "default", "namespace": "default"})
    row = resources.by_message(ServiceAccount)
    with contextlib.suppress(errors.AlreadyExists):
        await core.registry.create(context, row, "default", account, meta_v1.CreateOptions())


@asynccontextmanager
async def serve(
    store: Store,
    certificates: Certificates,
    *,
    grpc_port: int = 0,
    authorizer: Authorizer | None = None,
    kubelet_tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Served]:
    """Runs the core, the REST and the gRPC listener; on free ports where none is given."""
    core = ApiCore(store, authorizer=authorizer, kubelet_tls=kubelet_tls)
    cert, key = certificates.of("server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates.ca))
    context.load_cert_chain(cert, key)
    context.verify_mode = ssl.CERT_OPTIONAL
    handlers = ObjectHandlers(core.registry, core.authorizer, core.streams)
    health = StoreHealth(store)
    rest = RestServer(
        handlers,
        core.authorizer,
        tls=context,
        live={"etcd": health.problem},
        ready={"poststarthook/system-objects": lambda: None if core.bootstrap.done else "not finished"},
        version="test",
        refresh=health.refresh,
        bearer=core.registry.tokens.authenticate,
    )
    ca = certificates.ca.read_bytes()
    grpc_server = GrpcServer(
        core.methods, f"127.0.0.1:{grpc_port}", ca=ca, cert=cert.read_bytes(), key=key.read_bytes()
    )
    token_server = GrpcServer(
        core.methods,
        "127.0.0.1:0",
        cert=cert.read_bytes(),
        key=key.read_bytes(),
        bearer=core.registry.tokens.authenticate,
    )
    client_cert, client_key = certificates.of("client")
    credentials = grpc.ssl_channel_credentials(ca, client_key.read_bytes(), client_cert.read_bytes())
    try:
        async with Background() as background, AsyncExitStack() as started:
            core.start(background)
            await rest.start("127.0.0.1", 0)
            await grpc_server.start()
            await token_server.start()
            started.push_async_callback(rest.stop)
            started.push_async_callback(grpc_server.stop, 1.0)
            started.push_async_callback(token_server.stop, 1.0)
            started.callback(core.cache.finish_watchers)
            await _until_ready(core)
            url = f"https://localhost:{rest.port}"
            async with (
                _session(url, certificates, with_key=True) as session,
                _session(url, certificates, with_key=False) as anonymous,
                grpc.aio.secure_channel(f"localhost:{grpc_server.port}", credentials) as channel,
                grpc.aio.secure_channel(
                    f"localhost:{token_server.port}", grpc.ssl_channel_credentials(ca)
                ) as token_channel,
            ):
                yield Served(
                    core,
                    store,
                    rest.port,
                    grpc_server.port,
                    certificates,
                    session,
                    anonymous,
                    credentials,
                    channel,
                    token_channel,
                    rest.stop,
                )
    finally:
        await core.close()


def _session(url: str, certificates: Certificates, *, with_key: bool) -> aiohttp.ClientSession:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    if with_key:
        context.load_cert_chain(*certificates.of("client"))
    return aiohttp.ClientSession(
        url,
        connector=aiohttp.TCPConnector(ssl=context),
        timeout=aiohttp.ClientTimeout(total=30),
        skip_auto_headers=["Content-Type", "Accept"],
    )
