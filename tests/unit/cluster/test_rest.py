"""Readiness over mutual TLS, against a server that answers as the API server does."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from podyard.base import clock, pki
from podyard.base.pki import Identity
from podyard.cluster.rest import NodeState, RestProbe, Unreachable
from podyard.cluster.spec import HostPorts

Answers = dict[str, tuple[int, bytes]]
READY = {"type": "Ready", "status": "True", "message": "kubelet is posting ready status"}
NOT_READY = {"type": "Ready", "status": "False", "message": "network plugin is not ready"}
NODES = {
    "items": [
        {
            "metadata": {"name": "a"},
            "status": {"conditions": [{"type": "DiskPressure", "status": "False"}, READY]},
        },
        {"metadata": {"name": "b"}, "status": {"conditions": [NOT_READY]}},
        {"metadata": {"name": "c"}},
    ]
}


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Answers], RestProbe]]:
    now_s = clock.real_now_s()
    authority = pki.new_authority("kubernetes", now_s=now_s)
    server = Identity("kube-apiserver", addresses=("127.0.0.1",), client=False)
    for name, identity in (("server", server), ("admin", Identity("kubernetes-admin", ("system:masters",)))):
        pair = pki.issue(authority, identity, now_s=now_s)
        (tmp_path / f"{name}.crt").write_bytes(pair.certificate)
        (tmp_path / f"{name}.key").write_bytes(pair.key)
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "ca.crt"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    begun: list[tuple[HTTPServer, threading.Thread]] = []

    def start(answers: Answers) -> RestProbe:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = answers[self.path]
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        http = HTTPServer(("127.0.0.1", 0), Handler)
        http.socket = context.wrap_socket(http.socket, server_side=True)
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        begun.append((http, thread))
        files = {
            "ca": tmp_path / "ca.crt",
            "certificate": tmp_path / "admin.crt",
            "key": tmp_path / "admin.key",
        }
        return RestProbe(HostPorts(http.server_port, 0, 0), **files)

    yield start
    for http, thread in begun:
        http.shutdown()
        http.server_close()
        thread.join()


def test_ready_and_nodes(serve: Callable[[Answers], RestProbe]) -> None:
    probe = serve(
        {"/readyz?verbose": (200, b"[+]etcd ok"), "/api/v1/nodes": (200, json.dumps(NODES).encode())}
    )
    asyncio.run(probe.readyz())
    assert asyncio.run(probe.nodes()) == [
        NodeState("a", ready=True, reason="kubelet is posting ready status"),
        NodeState("b", ready=False, reason="network plugin is not ready"),
        NodeState("c", ready=False, reason="has not reported yet"),
    ]


def test_heartbeats_are_those_of_the_nodes_leases(serve: Callable[[Answers], RestProbe]) -> None:
    leases = [
        {"metadata": {"name": "a"}, "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}},
        {"metadata": {"name": "b"}, "spec": {}},
    ]
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    probe = serve({path: (200, json.dumps({"items": leases}).encode())})
    assert asyncio.run(probe.heartbeats()) == {"a": "2026-01-01T00:00:00.000000Z", "b": ""}
    with pytest.raises(Unreachable, match="cannot be read"):
        asyncio.run(serve({path: (200, b"[]")}).heartbeats())


def test_what_is_not_ready_is_told(serve: Callable[[Answers], RestProbe]) -> None:
    probe = serve(
        {
            "/readyz?verbose": (500, b"[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed"),
            "/api/v1/nodes": (200, b'{"items": 5}'),
        }
    )
    with pytest.raises(Unreachable, match=r"^etcd failed$"):
        asyncio.run(probe.readyz())
    with pytest.raises(Unreachable, match="cannot be read"):
        asyncio.run(probe.nodes())


@pytest.fixture
def files(serve: Callable[[Answers], RestProbe], tmp_path: Path) -> dict[str, Path]:
    """What a probe needs besides a server."""
    serve({})
    return {"ca": tmp_path / "ca.crt", "certificate": tmp_path / "admin.crt", "key": tmp_path / "admin.key"}


def complaint(
    port: int, files: dict[str, Path], *, timeout_s: float = 3.0, host: str = "127.0.0.1"
) -> Unreachable:
    with pytest.raises(Unreachable) as told:
        asyncio.run(RestProbe(HostPorts(port, 0, 0, host), **files).readyz(timeout_s=timeout_s))
    # Neither a library's words nor a number of the kernel's.
    assert not re.search(r"SSL|_ssl|Errno|EOF|0x", str(told.value))
    return told.value


Treats = Callable[[socket.socket], None]


@contextmanager
def treating(connection: Treats) -> Iterator[int]:
    """A server that does something to each connection, and ends it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client, suppress(OSError):
                        connection(client)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def reset_after_the_first_words(client: socket.socket) -> None:
    client.recv(1)
    reset(client)


def cut_after_the_first_words(client: socket.socket) -> None:
    client.recv(4096)


@pytest.mark.parametrize(
    "treat", [socket.socket.fileno, reset, reset_after_the_first_words, cut_after_the_first_words]
)
def test_a_server_that_starts_does_not_answer_yet(treat: Treats, files: dict[str, Path]) -> None:
    with treating(treat) as port:
        assert str(complaint(port, files)) == "the API server does not answer yet"


def test_nobody_there(files: dict[str, Path]) -> None:
    assert str(complaint(1, files)) == "the API server does not answer yet"


def test_one_that_is_silent_is_told_with_how_long_it_was_waited_for(files: dict[str, Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        told = complaint(silent.getsockname()[1], files, timeout_s=0.05)
    assert str(told) == "the API server does not answer within 0.05 s"


def speaks_no_tls(client: socket.socket) -> None:
    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    client.recv(4096)


def test_something_else_at_the_port_is_told_with_how_to_find_it(files: dict[str, Path]) -> None:
    with treating(speaks_no_tls) as port:
        told = complaint(port, files)
    assert str(told) == f"what answers at port {port} is not this cluster's API server"
    assert told.hint == f"see what has the port: ss -ltnp 'sport = :{port}'"


def test_another_clusters_server_is_not_ours(
    serve: Callable[[Answers], RestProbe], files: dict[str, Path]
) -> None:
    port = serve({})._port
    files["ca"].write_bytes(pki.new_authority("kubernetes", now_s=clock.real_now_s()).certificate)
    assert "is not this cluster's API server" in str(complaint(port, files))


def test_a_host_that_cannot_be_found_is_told_in_plain_words(files: dict[str, Path]) -> None:
    assert str(complaint(1, files, host="no.such.host.invalid")).startswith(
        "the API server cannot be reached: "
    )
