"""ImageLocality: nodes that have a pod's images already are better, unless few do.

An image that only some nodes have weighs less, so that pods do not all go to the first node that
pulled it.

Source: imagelocality/image_locality.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from podyard.api.types import Pod
from scheduler.cache import Cache, NodeState
from scheduler.framework import MAX_SCORE, Plugin
from scheduler.pods import Subject

_MEBI = 1024 * 1024
_LEAST_BYTES = 23 * _MEBI
_MOST_BYTES = 1000 * _MEBI  # for each image


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A pod's images that some node has: (name, part of all nodes that has it)."""

    images: tuple[tuple[str, float], ...]
    most_bytes: int


def _wanted(subject: Subject, cache: Cache, nodes: Sequence[NodeState]) -> _Wanted | None:
    names = images_of(subject.pod)
    count = len(cache)
    present = tuple((name, cache.images[name] / count) for name in names if name in cache.images)
    return _Wanted(present, _MOST_BYTES * len(names)) if present else None


def images_of(pod: Pod) -> list[str]:
    """The images of containers and volumes, with a tag, each as often as it is used."""
    spec = pod.spec
    images = [container.image for container in spec.initContainers]
    images += [container.image for container in spec.containers]
    images += [volume.volumeSource.image.reference for volume in spec.volumes if _is_image(volume)]
    return [_with_tag(image) for image in images]


def _is_image(volume: object) -> bool:
    return volume.volumeSource.HasField("image")  # type: ignore[attr-defined,no-any-return]


def _with_tag(name: str) -> str:
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def score_images(wanted: _Wanted, state: NodeState) -> int:
    """The bytes that need not be pulled, between 23 MiB and 1000 MiB for each image, as 0 to 100."""
    held = state.images
    found = sum(int(held[name] * part) for name, part in wanted.images if name in held)
    found = min(max(found, _LEAST_BYTES), wanted.most_bytes)
    return MAX_SCORE * (found - _LEAST_BYTES) // (wanted.most_bytes - _LEAST_BYTES)


IMAGES = Plugin("ImageLocality", pre_score=_wanted, score=score_images)
