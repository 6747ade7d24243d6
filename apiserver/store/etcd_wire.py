"""The wire to etcd: message names, channels to members, and what an error says about a write.

The only module that touches etcd3aio (for its generated messages) and, in the store, grpc. Its
watch and retry code is not used: the watch steps over compactions silently and the retry turns a
write of unknown outcome into a false conflict. Its generated service stubs are not used either:
they demand a newer grpcio than the one that is pinned for speed, so calls are named here.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import grpc
import grpc.aio

CallFailed = grpc.aio.AioRpcError
EOF: object = grpc.aio.EOF  # type: ignore[attr-defined]


_MODULES = (
    "google.api.http_pb2",
    "google.api.annotations_pb2",
    "protoc_gen_openapiv2.options.openapiv2_pb2",
    "protoc_gen_openapiv2.options.annotations_pb2",
    "etcd.api.mvccpb.kv_pb2",
    "etcd.api.authpb.auth_pb2",
    "etcd.api.versionpb.version_pb2",
    "etcd.api.etcdserverpb.rpc_pb2",
)


def _load_messages() -> Any:
    """etcd's message classes out of etcd3aio, without running the package itself."""
    found = importlib.util.find_spec("etcd3aio")
    if found is None or not found.submodule_search_locations:
        raise ImportError("etcd3aio is not installed")
    folder = str(Path(found.submodule_search_locations[0]) / "proto")
    # Last on the path, so that its copies of google.api never shadow the installed ones.
    sys.path.append(folder)
    try:
        # The generated modules do not import what they depend on: the order registers it.
        return [importlib.import_module(name) for name in _MODULES][-1]
    finally:
        sys.path.remove(folder)


_rpc = _load_messages()

Compare = _rpc.Compare
CompactionRequest = _rpc.CompactionRequest
DeleteRangeRequest = _rpc.DeleteRangeRequest
PutRequest = _rpc.PutRequest
RangeRequest = _rpc.RangeRequest
RequestOp = _rpc.RequestOp
TxnRequest = _rpc.TxnRequest
WatchCreateRequest = _rpc.WatchCreateRequest
WatchProgressRequest = _rpc.WatchProgressRequest
WatchRequest = _rpc.WatchRequest

# A member without a leader answers at once instead of letting the call wait for one.
REQUIRE_LEADER = (("hasleader", "true"),)

_CHANNEL_OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # etcd counts pings on a connection without calls as abuse.
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Also the time that one connection attempt gets, a TLS handshake on a busy machine included.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Retries are decided here, where it is known what a second try may do.
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
]


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM bytes of mutual TLS with the members."""

    ca: bytes
    cert: bytes
    key: bytes


class Stream(Protocol):
    """An open call of a member that has to end when the member is given up."""

    def abandon(self) -> None: ...


class Member:
    """One etcd member and the channel to it."""

    def __init__(self, endpoint: str, tls: Tls | None) -> None:
        self.endpoint = endpoint
        self.streams: set[Stream] = set()
        target = f"dns:///{endpoint}"
        if tls is None:
            self._channel = grpc.aio.insecure_channel(target, options=_CHANNEL_OPTIONS)
        else:
            credentials = grpc.ssl_channel_credentials(tls.ca, tls.key, tls.cert)
            self._channel = grpc.aio.secure_channel(target, credentials, options=_CHANNEL_OPTIONS)
        self.range = self._unary("Range", RangeRequest, _rpc.RangeResponse)
        self.txn = self._unary("Txn", TxnRequest, _rpc.TxnResponse)
        self.compact = self._unary("Compact", CompactionRequest, _rpc.CompactionResponse)
        self.watch: Any = self._channel.stream_stream(
            "/etcdserverpb.Watch/Watch",
            request_serializer=WatchRequest.SerializeToString,
            response_deserializer=_rpc.WatchResponse.FromString,
        )

    def _unary(self, method: str, request: Any, response: Any) -> Any:
        return self._channel.unary_unary(
            f"/etcdserverpb.KV/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )

    async def close(self) -> None:
        await self._channel.close(None)


class Members:
    """The members of a cluster, one of which is in use until it fails.

    (One channel with round robin over all of them would stall every third call on a paused member.)
    """

    def __init__(self, endpoints: Sequence[str], tls: Tls | None) -> None:
        if not endpoints:
            raise ValueError("at least one etcd endpoint is required")
        self.all = [Member(_plain(endpoint), tls) for endpoint in endpoints]
        self._index = 0

    @property
    def current(self) -> Member:
        return self.all[self._index]

    def give_up(self, member: Member) -> None:
        """Goes to the next member, unless another call has done so; ends the member's streams."""
        if member is self.current:
            self._index = (self._index + 1) % len(self.all)
        for stream in list(member.streams):
            stream.abandon()

    async def close(self) -> None:
        for member in self.all:
            await member.close()


def _plain(endpoint: str) -> str:
    """`host:2379` of an endpoint that may be written as a URL."""
    return endpoint.removeprefix("https://").removeprefix("http://").rstrip("/")


def prefix_end(prefix: bytes) -> bytes:
    """The first key after all keys that start with `prefix`."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else b"\0"


_REFUSED = {
    # etcd answers these before it proposes anything to the other members.
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNIMPLEMENTED,
}


def is_refused(error: CallFailed) -> bool:
    """The member answered that it will not do it: asking another member gives the same."""
    return error.code() in _REFUSED


def is_unsent(error: CallFailed) -> bool:
    """The request certainly reached no member's log.

    Either no connection could be made for it, or the member had no leader when it arrived.
    Whatever is not recognised here counts as sent, which is slower and always right.
    """
    details = error.details() or ""
    unsent = ("failed to connect to all addresses", "DNS resolution failed", "etcdserver: no leader")
    return error.code() == grpc.StatusCode.UNAVAILABLE and details.startswith(unsent)


def is_too_large(error: CallFailed) -> bool:
    details = error.details() or ""
    return "request is too large" in details or "received message larger than max" in details


def is_compacted(error: CallFailed) -> bool:
    return "has been compacted" in (error.details() or "")


def is_future(error: CallFailed) -> bool:
    return "is a future revision" in (error.details() or "")
