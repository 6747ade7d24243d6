"""The typed services over gRPC: two listeners, reflection, health.

grpcio asks for a client certificate only where it requires one, so there are two listeners:
mutual TLS on one, bearer tokens (metadata `authorization: Bearer TOKEN`) on the other. CN and O of
the certificate are the user and its groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from apiserver.auth import authn
from apiserver.auth.user import RequestContext, UserInfo
from apiserver.serve.rpc import Method
from podyard.api import errors
from podyard.api.errors import ApiError
from podyard.api.types import Message
from podyard.base import ids, log
from podyard.client.grpc_status import DETAILS_KEY, to_details

_LOGGER = log.get_logger("apiserver.grpc")
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_OPTIONS = (
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.so_reuseport", 0),
)


_Call = grpc.aio.ServicerContext[Any, Any]
_Identify = Callable[[_Call, Mapping[str, str]], Awaitable[UserInfo]]


class GrpcServer:
    """Serves a method table.

    Args:
        methods: from `apiserver.serve.rpc`.
        address: `host:port`; port 0 takes a free one (`self.port` tells).
        cert, key: PEM bytes.
        ca: PEM bytes; clients must present a certificate of it. None asks for tokens instead.
        bearer: the user of a bearer token; needed without `ca`.
    """

    def __init__(
        self,
        methods: Mapping[str, Method],
        address: str,
        *,
        cert: bytes,
        key: bytes,
        ca: bytes | None = None,
        bearer: authn.Bearer | None = None,
    ) -> None:
        identify = _by_certificate if ca is not None else _by_token(bearer)
        self._server = grpc.aio.server(options=_OPTIONS)
        for service, handlers in _by_service(methods, identify).items():
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = [*_by_service(methods, identify), health_pb2.DESCRIPTOR.services_by_name["Health"].full_name]
        reflection.enable_server_reflection([*names, reflection.SERVICE_NAME], self._server)
        credentials = grpc.ssl_server_credentials([(key, cert)], ca, require_client_auth=ca is not None)
        self.port: int = self._server.add_secure_port(address, credentials)

    async def start(self) -> None:
        await self._server.start()
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, grace_s: float) -> None:
        """Ends: no new calls at once, calls in flight have `grace_s` real seconds."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)


def _by_service(methods: Mapping[str, Method], identify: _Identify) -> dict[str, dict[str, Any]]:
    services: dict[str, dict[str, Any]] = {}
    for name, method in methods.items():
        _, service, verb = name.split("/")
        if method.duplex:
            shape, wrap = grpc.stream_stream_rpc_method_handler, _duplex
        elif method.streaming:
            shape, wrap = grpc.unary_stream_rpc_method_handler, _streaming
        else:
            shape, wrap = grpc.unary_unary_rpc_method_handler, _unary
        services.setdefault(service, {})[verb] = shape(
            wrap(name, method, identify),
            request_deserializer=method.request.FromString,
            response_serializer=_bytes_of,
        )
    return services


def _bytes_of(answer: Message | bytes) -> bytes:
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


async def _context_of(call: _Call, identify: _Identify) -> RequestContext:
    metadata = {key: str(value) for key, value in call.invocation_metadata() or ()}
    user = await identify(call, metadata)
    authn.refuse_impersonation(metadata)
    return RequestContext(user, ids.hex_id(), metadata.get("user-agent", ""))


async def _by_certificate(call: _Call, metadata: Mapping[str, str]) -> UserInfo:
    pems: Any = call.auth_context().get("x509_pem_cert")
    user = authn.user_of_pem(pems[0]) if pems else None
    if user is None:
        raise authn.unauthorized()
    return user


def _by_token(bearer: authn.Bearer | None) -> _Identify:
    async def identify(call: _Call, metadata: Mapping[str, str]) -> UserInfo:
        token = authn.bearer_token(metadata.get("authorization", ""))
        if not token or bearer is None:
            raise authn.unauthorized()
        return await bearer(token)

    return identify


def _unary(name: str, method: Method, identify: _Identify) -> Callable[..., Any]:
    async def answer(request: Any, call: _Call) -> Any:
        try:
            return await method.handler(await _context_of(call, identify), request)
        except ApiError as error:
            await _abort(call, error)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # request handler: one request's failure is its own
            _LOGGER.error("request failed", method=name, error=repr(error), exc_info=error)
            await _abort(call, errors.InternalError.of(str(error)))

    return answer


def _streaming(name: str, method: Method, identify: _Identify) -> Callable[..., Any]:
    async def answer(request: Any, call: _Call) -> AsyncIterator[Any]:
        try:
            async for item in method.handler(await _context_of(call, identify), request):
                yield item
        except ApiError as error:
            await _abort(call, error)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except Exception as error:  # request handler: one request's failure is its own
            _LOGGER.error("stream failed", method=name, error=repr(error), exc_info=error)
            await _abort(call, errors.InternalError.of(str(error)))

    return answer


def _duplex(name: str, method: Method, identify: _Identify) -> Callable[..., Any]:
    async def answer(requests: AsyncIterator[Any], call: _Call) -> None:
        writing = asyncio.Lock()

        async def send(message: Message) -> None:
            # The library takes one message at a time and fails the call at a second.
            async with writing:
                await call.write(message)

        try:
            await method.handler(await _context_of(call, identify), requests, send)
        except ApiError as error:
            await _abort(call, error)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # request handler: one request's failure is its own
            _LOGGER.error("stream failed", method=name, error=repr(error), exc_info=error)
            await _abort(call, errors.InternalError.of(str(error)))

    return answer


async def _abort(call: _Call, error: ApiError) -> None:
    await call.abort(_CODES[error.grpc_code], error.message, ((DETAILS_KEY, to_details(error)),))
