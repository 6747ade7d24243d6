"""A running cluster as tests use it: the command, kubectl, gRPC, and hands on its containers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from podyard.base.config import TlsFiles
from podyard.client.client import Client
from podyard.client.grpc_transport import GrpcTransport, credentials_of
from tests.cluster.support import DEADLINE_S

T = TypeVar("T")

# argv of each process as the first words of its /proc/PID/cmdline, by its container's role.
PROCESSES = {
    "etcd": ("etcd", "etcd --config-file"),
    "apiserver": ("apiserver", "podyard run apiserver"),
    "scheduler": ("scheduler", "podyard run scheduler"),
    "controller-manager": ("controller-manager", "podyard run controller-manager"),
    "kubelet": ("worker", "podyard run kubelet"),
    "proxy": ("worker", "podyard run proxy"),
    "containerd": ("worker", "containerd"),
}
# Without the shell that runs this: its own command line has the words too.
_FIND = r"""
for p in /proc/[0-9]*; do
  [ -r "$p/cmdline" ] || continue
  line=$(tr '\0' ' ' < "$p/cmdline" 2>/dev/null) || continue
  line="${line#/opt/podyard/venv/bin/python /usr/local/bin/}"
  line="${line#/usr/bin/}"
  case "$line" in "$0 "*|"$0") echo "${p#/proc/}"; [ -z "$1" ] || kill -"$1" "${p#/proc/}";; esac
done
"""


@dataclass(frozen=True)
class Live:
    """One cluster. `name` is its name, `data` the XDG data folder that has its state."""

    name: str
    data: Path

    # The command and kubectl.

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "XDG_DATA_HOME": str(self.data)}

    def podyard(self, *arguments: str, timeout_s: float = 300, code: int | None = 0, stdin: str = "") -> str:
        """Output and messages together; the exit code must be `code` unless that is None."""
        done = subprocess.run(
            [sys.executable, "-m", "podyard.cli.main", "--name", self.name, *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            input=stdin,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        assert code is None or done.returncode == code, done.stdout
        return done.stdout

    @property
    def kubeconfig(self) -> Path:
        return self.data / "podyard" / self.name / "kubeconfig"

    def kubectl(self, *arguments: str, timeout_s: float = 90, code: int | None = 0, stdin: str = "") -> str:
        """The real kubectl with this cluster's kubeconfig; output and messages together."""
        done = subprocess.run(
            [str(Path(sys.executable).with_name("kubectl")), *arguments],
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            input=stdin,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        assert code is None or done.returncode == code, f"kubectl {arguments}: {done.stdout}"
        return done.stdout

    def get(self, *arguments: str) -> Any:
        """`kubectl get -o json`, parsed."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def apply(self, *objects: dict[str, Any]) -> None:
        text = "---\n".join(yaml.safe_dump(obj) for obj in objects)
        self.kubectl("apply", "-f", "-", stdin=text)

    # gRPC.

    @property
    def state(self) -> Path:
        return self.data / "podyard" / self.name

    def ports(self) -> dict[str, int]:
        """Ports of the first API server on 127.0.0.1: rest, grpc."""
        content = yaml.safe_load((self.state / "cluster.yaml").read_text(encoding="utf-8"))
        ports: dict[str, int] = content["ports"][f"{self.name}-apiserver-1"]
        return ports

    def admin_files(self) -> TlsFiles:
        pki = self.state / "pki"
        return TlsFiles(ca=str(pki / "ca.crt"), cert=str(pki / "admin.crt"), key=str(pki / "admin.key"))

    def transport(self) -> GrpcTransport:
        """A transport as the administrator; the caller closes it."""
        endpoint = f"127.0.0.1:{self.ports()['grpc']}"
        return GrpcTransport([endpoint], credentials_of(self.admin_files()), user_agent="podyard-test")

    def client(self, transport: GrpcTransport) -> Client:
        return Client(transport, field_manager="podyard-test")

    # Containers.

    def container(self, short: str) -> str:
        return f"{self.name}-{short}"

    def workers(self) -> list[str]:
        return [row for row in self.containers() if row.startswith(f"{self.name}-worker-")]

    def containers(self) -> list[str]:
        listed = docker(
            "ps", "-a", "--filter", f"label=podyard.cluster={self.name}", "--format", "{{.Names}}"
        )
        return sorted(listed.split())

    def in_container(self, name: str, *command: str, code: int | None = 0, timeout_s: float = 60) -> str:
        """Output of a command in a container."""
        return docker("exec", name, *command, code=code, timeout_s=timeout_s)

    def shell(self, name: str, script: str, *arguments: str) -> str:
        return self.in_container(name, "sh", "-c", script, *(arguments or ("sh",)))

    def pids(self, container: str, process: str) -> list[int]:
        """Pids in the container of one of PROCESSES."""
        return [int(word) for word in self.shell(container, _FIND, PROCESSES[process][1], "").split()]

    def kill(self, container: str, process: str, signal: int = 9) -> list[int]:
        """Sends a signal to a process of PROCESSES; answers which pids got it."""
        words = self.shell(container, _FIND, PROCESSES[process][1], str(signal)).split()
        return [int(word) for word in words]

    @contextmanager
    def stopped(self, short: str) -> Iterator[None]:
        """`docker stop` for a while, `docker start` at the end."""
        docker("stop", "--time", "10", self.container(short))
        try:
            yield
        finally:
            docker("start", self.container(short))


def process_name(line: str) -> str:
    """A short name of a command line: `kubelet`, `containerd-shim`."""
    words = line.split()
    if len(words) > 3 and words[1].endswith("/podyard"):
        return "init" if words[2] == "init" else words[3]
    return Path(words[0]).name


def aligned(rows: Sequence[Sequence[object]]) -> list[str]:
    """Lines of columns, each as wide as its widest cell."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in texts]


def docker(*arguments: str, code: int | None = 0, timeout_s: float = 90) -> str:
    """Output of the docker command."""
    done = subprocess.run(
        ["docker", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    assert code is None or done.returncode == code, f"docker {arguments}: {done.stdout}"
    return done.stdout


def eventually(
    look: Callable[[], T], good: Callable[[T], bool] = bool, *, within_s: float = DEADLINE_S, what: str = ""
) -> T:
    """Looks until it is good; the last thing seen is in the failure."""
    deadline_s = time.monotonic() + within_s
    while True:
        seen = look()
        if good(seen):
            return seen
        assert time.monotonic() < deadline_s, f"not within {within_s:g} s: {what} {seen}"
        time.sleep(0.1)


async def eventually_async(
    look: Callable[[], Awaitable[T]],
    good: Callable[[T], bool] = bool,
    *,
    within_s: float = DEADLINE_S,
    what: str = "",
) -> T:
    """As `eventually`, on a loop."""
    deadline_s = time.monotonic() + within_s
    while True:
        seen = await look()
        if good(seen):
            return seen
        assert time.monotonic() < deadline_s, f"not within {within_s:g} s: {what} {seen}"
        await asyncio.sleep(0.1)


# What must be gone from a node once it has no pods; each line of output is a leftover.
LEFTOVERS = r"""
ctr -n k8s.io containers ls -q 2>&1 | sed 's/^/container /'
ctr -n k8s.io tasks ls -q 2>&1 | sed 's/^/task /'
ls /var/lib/cni/networks/podyard 2>/dev/null | grep '^[0-9]' | sed 's/^/address /'
ls /run/netns /var/run/netns 2>/dev/null | grep '^cni-' | sort -u | sed 's/^/netns /'
ip -o link | grep -o 'veth[0-9a-f]*' | sort -u | sed 's/^/link /'
ls /var/lib/kubelet/pods 2>/dev/null | sed 's/^/volumes /'
ls /var/log/pods 2>/dev/null | sed 's/^/log /'
cut -d' ' -f2 /proc/mounts | grep -e /var/lib/kubelet/pods -e cri/sandboxes -e v2.task | sed 's/^/mount /'
find /sys/fs/cgroup -type d -path '*kubepods*/pod*' 2>/dev/null | sed 's/^/cgroup /'
for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline 2>/dev/null | grep -o '^[^ ]*containerd-shim.*' ; done
true
"""


def leftovers(live: Live, node: str) -> list[str]:
    """What a node has of pods."""
    return live.shell(node, LEFTOVERS).splitlines()
