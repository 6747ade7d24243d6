"""Runs inside a node: starts pods by CRI calls alone, all at once, and prints how long the last one took.

python - COUNT < bare_cri.py. Nothing of the kubelet takes part but its thin CRI client: no API, no
volumes, no status. The pods are removed afterwards.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
import uuid
from pathlib import Path

from kubelet.runtime.base import ContainerSpec, SandboxSpec
from kubelet.runtime.cri import CriRuntime

IMAGE = "docker.io/library/busybox:latest"
COMMAND = ("sleep", "3600")
LOGS = "/var/log/pods/bare_{uid}"


def sandbox_of(uid: str) -> SandboxSpec:
    return SandboxSpec(
        pod_uid=uid,
        pod_name=f"bare-{uid[:8]}",
        pod_namespace="bare",
        attempt=0,
        hostname="bare",
        log_directory=LOGS.format(uid=uid),
        cgroup_parent=f"/kubepods/besteffort/pod{uid}",
    )


async def start(runtime: CriRuntime, spec: SandboxSpec) -> str:
    """One pod: sandbox, container, start; answers the sandbox."""
    sandbox = await runtime.run_sandbox(spec)
    container = ContainerSpec(name="main", attempt=0, image=IMAGE, command=COMMAND, log_path="main.log")
    await runtime.start_container(await runtime.create_container(sandbox, container, spec))
    return sandbox


async def remove(runtime: CriRuntime, sandbox: str) -> None:
    await runtime.stop_sandbox(sandbox)
    await runtime.remove_sandbox(sandbox)


async def timed(specs: list[SandboxSpec]) -> None:
    runtime = CriRuntime(
        "/run/containerd/containerd.sock", network_directory=Path("/etc/cni/net.d"), mtu=1500
    )
    begun_s = time.monotonic()
    sandboxes = await asyncio.gather(*(start(runtime, spec) for spec in specs))
    print(f"{time.monotonic() - begun_s:.3f}", flush=True)
    await asyncio.gather(*(remove(runtime, sandbox) for sandbox in sandboxes))
    await runtime.close()


def main(count: int) -> None:
    specs = [sandbox_of(str(uuid.uuid4())) for _ in range(count)]
    for spec in specs:
        Path(spec.log_directory).mkdir(parents=True)
    asyncio.run(timed(specs))
    for spec in specs:
        shutil.rmtree(spec.log_directory)
        for cgroup in Path("/sys/fs/cgroup").glob(f"**/pod{spec.pod_uid}"):
            cgroup.rmdir()


main(int(sys.argv[1]))
