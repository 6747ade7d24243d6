"""The REST gateway: kubectl and the ordinary client libraries speak to this.

One handler takes every request: it authenticates, reads the path, and hands over to discovery,
health or the resource handlers. Every failure becomes a Status in the form that the client asked
for.
"""

from __future__ import annotations

import asyncio
import functools
import platform
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from apiserver.auth import authn
from apiserver.auth.authz import Attributes, Authorizer, require
from apiserver.auth.user import RequestContext, UserInfo
from apiserver.serve import answers, discovery, openapi
from apiserver.serve.negotiate import JSON, form_of, parse_accept
from apiserver.serve.paths import GroupPath, Path, ResourcePath, UnknownResource, parse_path
from apiserver.serve.rest_objects import ObjectHandlers, warning
from podyard.api import errors
from podyard.api.errors import ApiError
from podyard.base import clock, ids, log, metrics
from podyard.base.health import Check, report

_LOGGER = log.get_logger("apiserver.rest")
_OPEN_PATHS = frozenset({"/livez", "/readyz", "/healthz", "/version"})
_REQUESTS_S = metrics.histogram(
    "apiserver_request_duration_seconds", "Response latency in seconds", ("verb", "resource", "code")
)
# As proxies count requests whose client did not wait.
_CLIENT_GONE = 499
_REQUEST_ID = web.RequestKey("request_id", str)
_PATH = web.RequestKey("path", object)
# Source: the deprecation markers of the served kinds.
_DEPRECATED = {
    ("v1", "Endpoints"): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
}
KUBERNETES_VERSION = {"major": "1", "minor": "36"}


class RestServer:
    """Serves HTTP/1.1 over TLS; client certificates are asked for and verified, not required.

    Args:
        handlers: the verbs on resources.
        authorizer: for paths that are no resources.
        tls: server context; None serves plain HTTP (tests on loopback only).
        live, ready: see `podyard.base.health`; what is wrong is not told to clients, as upstream.
        refresh: brings up to date what the checks look at; called before they are.
        version: of this program, for /version.
        bearer: the user of a bearer token; None takes none.
    """

    def __init__(
        self,
        handlers: ObjectHandlers,
        authorizer: Authorizer,
        *,
        tls: ssl.SSLContext | None,
        live: Mapping[str, Check],
        ready: Mapping[str, Check],
        version: str,
        refresh: Callable[[], Awaitable[None]] | None = None,
        bearer: authn.Bearer | None = None,
    ) -> None:
        self._handlers = handlers
        self._authorizer = authorizer
        self._tls = tls
        ping: dict[str, Check] = {"ping": lambda: None}
        self._live = {**ping, **live}
        self._ready = {**ping, **live, **ready}
        self._version = version
        self._refresh = refresh
        self._bearer = bearer
        application = web.Application(client_max_size=0)
        application.router.add_route("*", "/{tail:.*}", self._answer)
        application.on_response_prepare.append(_complete_head)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=2.0,
            keepalive_timeout=120.0,
            # A client that goes ends its request, as over gRPC: else its watch or log lives on unread.
            handler_cancellation=True,
        )
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listens; port 0 takes a free one (`self.port` tells)."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=self._tls, reuse_address=True, backlog=1024)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        started_s = clock.real_monotonic_s()
        request_id = request.headers.get("Audit-ID") or ids.hex_id()
        request[_REQUEST_ID] = request_id
        path: Path | None = None
        try:
            path = parse_path(request.rel_url.raw_path)
            request[_PATH] = path
            response = await self._route(request, request_id, path)
        except ApiError as error:
            response = self._failure(request, error)
        except asyncio.CancelledError:
            raise
        except ConnectionError:
            # The client went while it was being answered: nobody reads this, and it is no failure.
            response = web.Response(status=_CLIENT_GONE)
        except Exception as error:  # request handler: one request's failure is its own
            _LOGGER.error("request failed", path=request.path, request_id=request_id, exc_info=error)
            response = self._failure(request, errors.InternalError.of(str(error)))
        resource = path.row.plural if isinstance(path, ResourcePath) else ""
        seconds = clock.real_monotonic_s() - started_s
        _REQUESTS_S.labels(request.method, resource, str(response.status)).observe(seconds)
        return response

    async def _route(self, request: web.Request, request_id: str, path: Path | None) -> web.StreamResponse:
        user = await self._user(request)
        authn.refuse_impersonation(request.headers)
        if isinstance(path, ResourcePath):
            agent = request.headers.get("User-Agent", "")
            return await self._handlers.handle(request, RequestContext(user, request_id, agent), path)
        require(self._authorizer, Attributes(user, request.method.lower(), path=request.path))
        if isinstance(path, UnknownResource):
            raise errors.NotFound.route()
        if request.method not in ("GET", "HEAD"):
            if path is None:
                return self._not_found()
            raise errors.MethodNotAllowed.route()
        if isinstance(path, GroupPath):
            return self._discovery(request, path)
        return await self._document(request)

    async def _user(self, request: web.Request) -> UserInfo:
        der = self._certificate(request)
        user = authn.user_of_certificate(der) if der else None
        if user is not None:
            return user
        token = authn.bearer_token(request.headers.get("Authorization", ""))
        if token and self._bearer is not None:
            return await self._bearer(token)
        root = "/" + request.path.strip("/").partition("/")[0]
        if root in _OPEN_PATHS:
            return UserInfo("system:anonymous", ("system:unauthenticated",))
        raise authn.unauthorized()

    @staticmethod
    def _certificate(request: web.Request) -> bytes | None:
        """The client's certificate, which the handshake has verified; None without one."""
        connection = request.transport.get_extra_info("ssl_object") if request.transport else None
        der: bytes | None = connection.getpeercert(binary_form=True) if connection is not None else None
        return der

    async def _document(self, request: web.Request) -> web.Response:
        path = request.path.rstrip("/")
        root, _, check = path.strip("/").partition("/")
        if root in ("livez", "healthz", "readyz"):
            return await self._health(request, root, check)
        if path == "/version":
            return web.json_response(self._version_info())
        if path == "/metrics":
            return web.Response(body=metrics.exposition(), headers={"Content-Type": metrics.CONTENT_TYPE})
        if path.startswith("/openapi/"):
            found = openapi.document(path, request.headers.get("Accept", ""))
            if found is not None:
                headers = {"Content-Type": found.content_type, "Etag": found.etag, "Vary": "Accept"}
                if request.headers.get("If-None-Match") == found.etag:
                    return web.Response(status=304, headers=headers)
                return web.Response(body=found.body, headers=headers)
        return self._not_found()

    async def _health(self, request: web.Request, name: str, check: str) -> web.Response:
        checks = self._ready if name == "readyz" else self._live
        if self._refresh is not None:
            await self._refresh()
        if check:
            if check not in checks:
                return self._not_found()
            checks = {check: checks[check]}
        told = {each: functools.partial(_withheld, ask) for each, ask in checks.items()}
        code, text = report(name, told, verbose="verbose" in request.query)
        return web.Response(status=code, text=text)

    def _version_info(self) -> dict[str, str]:
        return {
            **KUBERNETES_VERSION,
            "gitVersion": f"v1.36.0+podyard-{self._version}",
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": f"python{platform.python_version()}",
            "compiler": platform.python_implementation().lower(),
            "platform": f"linux/{_architecture()}",
        }

    def _discovery(self, request: web.Request, path: GroupPath) -> web.Response:
        accept = request.headers.get("Accept", "")
        document: dict[str, Any] | None
        content_type = JSON
        if not path.group and not path.version:
            if _wants_aggregated(accept):
                document = discovery.aggregated(path.core)
                content_type = f"{JSON};g={discovery.AGGREGATED_GROUP};v=v2;as={discovery.AGGREGATED}"
            elif path.core:
                document = discovery.api_versions(request.host)
            else:
                document = discovery.group_list()
        elif path.version:
            document = discovery.resource_list(path.group, path.version)
        else:
            document = discovery.group(path.group)
        if document is None:
            return self._not_found()
        etag = discovery.etag(document)
        headers = {"Content-Type": content_type, "Etag": etag, "Vary": "Accept"}
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=answers.encode(document, JSON), headers=headers)

    def _failure(self, request: web.Request, error: ApiError) -> web.Response:
        try:
            media = form_of(request.headers.get("Accept", "").split(";")[0]).media
        except errors.NotAcceptable:
            media = JSON
        response = web.Response(
            status=error.code,
            body=answers.status_body(error.to_status(), media),
            headers={"Content-Type": media},
        )
        if error.retry_after_s:
            response.headers["Retry-After"] = str(error.retry_after_s)
        return response

    def _not_found(self) -> web.Response:
        return web.Response(status=404, text="404 page not found\n")


def _withheld(check: Check) -> str | None:
    return None if check() is None else "reason withheld"


async def _complete_head(request: web.Request, response: web.StreamResponse) -> None:
    """What every answer's head has, streams included."""
    response.headers["Audit-Id"] = request[_REQUEST_ID]
    response.headers["Cache-Control"] = "no-cache, private"
    path = request.get(_PATH)
    if isinstance(path, ResourcePath):
        text = _DEPRECATED.get((path.row.api_version, path.row.kind))
        if text:
            response.headers.add("Warning", warning(text))


def _wants_aggregated(accept: str) -> bool:
    return any(
        entry.parameter("as") == discovery.AGGREGATED and entry.parameter("v") == "v2" and entry.type == JSON
        for entry in parse_accept(accept)
    )


def _architecture() -> str:
    names = {"x86_64": "amd64", "aarch64": "arm64"}
    return names.get(platform.machine(), platform.machine())
