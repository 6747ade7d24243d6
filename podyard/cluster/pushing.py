"""Puts images of the local engine into the registry that every node of every cluster pulls from first."""

from __future__ import annotations

import re
from collections.abc import Iterable

from podyard.cluster.engine import Engine
from podyard.cluster.errors import ClusterError, NotFoundError
from podyard.cluster.progress import Progress
from podyard.cluster.spec import REGISTRY_NAME, REGISTRY_PORT

_DEFAULT_HOST = "docker.io"
_SHOWN = 5


async def push(engine: Engine, image: str, progress: Progress, *, cluster: str) -> None:
    """Pushes an image; pods then use it by the same name.

    One registry serves all clusters, but one that compose has made has its own.

    Raises:
        NotFoundError: no such image, or no registry.
        ClusterError: the image is named by digest.
    """
    path, tag = registry_path(image)
    if not await engine.image_id(image):
        raise NotFoundError(
            f"the engine has no image {image if _has_tag(image) else f'{image}:{tag}'}",
            hint=_those_there_are(path, await engine.image_names()),
        )
    own = f"{cluster}-registry"
    name = own if await engine.inspect(own) is not None else REGISTRY_NAME
    registry = await engine.inspect(name)
    port = await engine.host_port(name, REGISTRY_PORT)
    if registry is None or registry.state != "running" or not port:
        raise NotFoundError("the registry does not run", hint="podyard up starts it")
    with progress.step(f"pushing {image}"):
        await engine.push(image, f"127.0.0.1:{port}/{path}", tag, progress.detail)


def _those_there_are(path: str, names: Iterable[str]) -> str:
    """What could have been meant: the images that differ in nothing but the tag, or the host's name."""
    # An image that lost its tag to another is listed as none.
    named = [name for name in names if "<none>" not in name and "@" not in name]
    found = sorted(name for name in named if registry_path(name)[0] == path)
    if not found:
        return "docker images shows those there are"
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"there is {', '.join(found[:_SHOWN])}{more}: podyard push {found[0]}"


def _has_tag(image: str) -> bool:
    return ":" in image.rpartition("/")[2]


def registry_path(image: str) -> tuple[str, str]:
    """Repository and tag under which nodes look for an image in the registry: its name without the host.

    Raises:
        ClusterError: a digest, which a push cannot choose.
    """
    if "@" in image:
        raise ClusterError(
            f"{image!r} is named by digest, which a push cannot choose",
            hint="give it a tag first: docker tag IMAGE NAME:TAG",
        )
    path, tag = image, "latest"
    if _has_tag(image):
        path, _, tag = image.rpartition(":")
    host, slash, rest = path.partition("/")
    if slash and (re.search(r"[.:]", host) or host == "localhost"):
        path = rest
        if host != _DEFAULT_HOST:
            return path, tag
    # A name of one word belongs to the default host's `library`.
    return path if "/" in path else f"library/{path}", tag
