"""Where an engine's published ports are reached, and what its machine is: pure, from what it is called.

The engine may be on this machine, in a virtual machine that forwards to this machine's loopback, or far
away. Only its address, as `DOCKER_HOST` or the docker context has it, says which: a socket is here or
forwards to here; a host is where its ports are.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

LOOPBACK = "127.0.0.1"

# The engine's words (the kernel's) -> Debian's.
_DEBIAN = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "armhf",
    "armv6l": "armel",
    "i386": "i386",
    "i686": "i386",
    "ppc64le": "ppc64el",
    "riscv64": "riscv64",
    "s390x": "s390x",
}
_REMOTE_SCHEMES = frozenset({"tcp", "http", "https", "ssh"})


def host_of(endpoint: str) -> str:
    """The host whose ports are the engine's.

    Args:
        endpoint: of the engine's API, such as `unix:///var/run/docker.sock`, `tcp://10.0.0.5:2376` or
            `ssh://me@build.example`; empty for the engine's default, a socket.

    Returns:
        A name or address; 127.0.0.1 where the ports are this machine's.
    """
    endpoint = endpoint.strip()
    parts = urlsplit(endpoint)
    # As the engine's own library reads it: what is no word is a host, and what has no scheme is tcp.
    if endpoint and not parts.scheme.replace("+", "").isalpha():
        parts = urlsplit(f"tcp://{endpoint}")
    host = parts.hostname or ""
    if parts.scheme not in _REMOTE_SCHEMES or not host or host == "localhost":
        return LOOPBACK
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    # 0.0.0.0 is what an engine listens on; as a place to go to it is this machine.
    return LOOPBACK if address.is_loopback or address.is_unspecified else host


def publish_address(host: str) -> str:
    """On which of its addresses the engine publishes the API server, for a host as `host_of` answers it.

    Only the API server's ports are published beyond a loopback: all of them are TLS. REST (6443) takes client
    certificates and bearer tokens and answers for health and version without any; gRPC
    takes certificates (6444) or tokens (6445).
    """
    if host == LOOPBACK:
        return LOOPBACK
    return "::" if ":" in host else "0.0.0.0"


def in_url(host: str) -> str:
    """A host as it stands before a port: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host else host


def debian_architecture(machine: str) -> str:
    """What Debian calls the engine's architecture; its own word where Debian's is not known."""
    return _DEBIAN.get(machine, machine)
