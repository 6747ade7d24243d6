"""Can this host carry the cluster? Each check says what is wrong and what to do.

The judgement is pure (`judge`); `gather` collects what it needs. What cannot be seen from here, such as the
limits of a remote engine's host, is not judged.
"""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from podyard.cluster.engine import Engine, EngineError, EngineInfo
from podyard.cluster.errors import PreflightError
from podyard.cluster.spec import Port
from podyard.cluster.wording import counted

MIN_API_VERSION = (1, 41)
MIN_MEMORY_BYTES = 2 * 1024**3
# The image with its layers while it is built; volumes and logs of a small cluster.
BUILD_DISK_BYTES = 3 * 1024**3
RUN_DISK_BYTES = 1024**3
# What a node takes: containerd, its CNI watch, kubelet, and one or two for each pod's cgroup events.
INOTIFY_INSTANCES_A_NODE = 16
_INOTIFY_SETTING = Path("/proc/sys/fs/inotify/max_user_instances")


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What is known of the engine's host; None where it cannot be seen from here."""

    engine: EngineInfo
    inotify_instances: int | None
    free_disk_bytes: int | None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with the host, and what to do about it."""

    text: str
    remedy: str
    fatal: bool = True


def judge(facts: HostFacts, *, nodes: int, image_present: bool) -> list[Problem]:
    """What stands in the way of a cluster of so many nodes; empty when nothing does."""
    problems = []
    engine = facts.engine
    if engine.os_type != "linux":
        problems.append(
            Problem(f"the engine runs {engine.os_type} containers", "switch it to Linux containers")
        )
    if engine.podman:
        problems.append(
            Problem(
                "the engine is Podman, whose containers cannot be nodes",
                "use Docker Engine; DOCKER_HOST or `docker context` chooses among several",
            )
        )
    if engine.rootless:
        problems.append(
            Problem(
                "the engine is rootless: it may not give containers the capabilities that nodes need",
                "use an engine that runs as root; DOCKER_HOST or `docker context` chooses among several",
            )
        )
    if _version(engine.api_version) < MIN_API_VERSION:
        problems.append(
            Problem(
                f"the engine {engine.version} speaks API {engine.api_version}; 1.41 or later is needed",
                "update Docker Engine to 20.10 or later",
            )
        )
    if engine.memory_bytes < MIN_MEMORY_BYTES:
        problems.append(
            Problem(
                f"the engine has {engine.memory_bytes / 1024**3:.1f} GiB of memory; a cluster wants 2 GiB",
                "give the engine more memory, or use fewer nodes",
                fatal=False,
            )
        )
    wanted_disk = RUN_DISK_BYTES if image_present else BUILD_DISK_BYTES
    if facts.free_disk_bytes is not None and facts.free_disk_bytes < wanted_disk:
        problems.append(
            Problem(
                f"{facts.free_disk_bytes / 1024**3:.1f} GiB are free below {engine.root_directory}; "
                f"{wanted_disk / 1024**3:.0f} GiB are needed",
                "free some space, for example with: docker image prune",
            )
        )
    wanted_instances = INOTIFY_INSTANCES_A_NODE * nodes
    if facts.inotify_instances is not None and facts.inotify_instances < wanted_instances:
        problems.append(
            Problem(
                f"fs.inotify.max_user_instances is {facts.inotify_instances}; "
                f"about {wanted_instances} are needed for {counted(nodes, 'node')}",
                f"sudo sysctl fs.inotify.max_user_instances={max(512, wanted_instances)}",
            )
        )
    return problems


def taken_port(port: Port, why: str) -> Problem:
    """A port that is to be published and that something else has."""
    return Problem(
        f"{port} cannot be published: {why}",
        f"choose another port of the host, or end what has it: ss -lnp 'sport = :{port.outside}'",
    )


async def gather(engine: Engine) -> HostFacts:
    """The facts, from the engine and, when it runs on this very host, from the host."""
    info = await engine.info()
    if not _same_host(info):
        return HostFacts(info, None, None)
    return HostFacts(info, _read_int(_INOTIFY_SETTING), _free_bytes(Path(info.root_directory)))


def require(problems: list[Problem]) -> None:
    """Raises:
    PreflightError: one of the problems is fatal; its text has them all.
    """
    fatal = [problem for problem in problems if problem.fatal]
    if fatal:
        text = "\n".join(problem.text for problem in fatal)
        raise PreflightError(text, hint="\n".join(problem.remedy for problem in fatal))


def explain_start_failure(error: EngineError, name: str) -> EngineError | PreflightError:
    """A container that the engine would not start, as a problem of the host where it is one."""
    text = str(error).lower()
    if "operation not permitted" in text or "capabilit" in text:
        return PreflightError(
            f"{name}: the engine may not give the container what a node needs: {error}",
            hint="a rootless engine, or one that lacks these capabilities itself, cannot carry nodes",
        )
    return EngineError(f"{name}: {error}", hint=error.hint, status=error.status)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def _same_host(info: EngineInfo) -> bool:
    # The socket says nothing (a VM may stand behind it); the same kernel with the engine's folder on it does.
    return (
        platform.system() == "Linux" and platform.release() == info.kernel and os.path.isdir("/proc/sys/fs")
    )


def _read_int(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _free_bytes(path: Path) -> int | None:
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None
