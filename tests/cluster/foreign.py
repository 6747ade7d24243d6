"""Programs of Debian 13 that nobody here wrote, in one image over the cluster's own.

Compose 2, kubectl 1.32, Ruby's gRPC: the host needs none of them. A container of the image sees the host's
loopback, and the files that a test shows it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from podyard.cluster.spec import IMAGE

PACKAGES = ("docker-compose", "kubernetes-client", "ruby-grpc", "ruby-grpc-tools")
BUILD_DEADLINE_S = 300


def build() -> str:
    """Builds the image, which takes about half a minute the first time.

    Returns:
        Its name.
    """
    name = f"podyard-test-foreign:{os.getpid()}"
    install = f"apt-get update -q && apt-get install -yq --no-install-recommends {' '.join(PACKAGES)}"
    file = f"FROM {IMAGE}\nRUN {install}\nENTRYPOINT []\n"
    subprocess.run(
        ["docker", "build", "-q", "-t", name, "-"], input=file.encode(), check=True, timeout=BUILD_DEADLINE_S
    )
    return name


def remove(name: str) -> None:
    """Removes the image; the engine keeps what other images share."""
    subprocess.run(["docker", "rmi", "-f", name], check=True, capture_output=True)


def _options(mounts: tuple[Path | str, ...]) -> tuple[str, ...]:
    """The host's network, and its files and folders under the same paths."""
    seen = (argument for mount in mounts for argument in ("-v", f"{mount}:{mount}"))
    return ("--init", "--network", "host", *seen)


def command(image: str, *mounts: Path | str) -> tuple[str, ...]:
    """What stands before a program's own command line so that it runs in a container of the image.

    Args:
        image: from `build`.
        mounts: files and folders of the host that it sees under the same paths.
    """
    return ("docker", "run", "--rm", "-i", *_options(mounts), image)


@contextmanager
def staying(image: str, *mounts: Path | str) -> Iterator[str]:
    """A container of the image that stays, for programs that are called often: by `docker exec`.

    Whoever runs the tests owns what it writes.

    Args:
        image: from `build`.
        mounts: files and folders of the host that it sees under the same paths.

    Returns:
        The container's name.
    """
    name = image.replace(":", "-")
    as_us = ("-u", f"{os.getuid()}:{os.getgid()}", "-e", "HOME=/tmp")
    begin = ["docker", "run", "-d", "--name", name, *_options(mounts), *as_us, image, "sleep", "infinity"]
    subprocess.run(begin, check=True, capture_output=True)
    try:
        yield name
    finally:
        subprocess.run(["docker", "rm", "-f", name], check=True, capture_output=True)
