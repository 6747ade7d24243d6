"""An image that is not there is told with those that may have been meant."""

from __future__ import annotations

import pytest

from podyard.cluster import pushing
from podyard.cluster.errors import NotFoundError
from tests.unit.cluster.notes import Notes


class Engine:
    """Has images of these names."""

    def __init__(self, *names: str) -> None:
        self._names = list(names)

    async def image_id(self, reference: str) -> str:
        return ""

    async def image_names(self) -> list[str]:
        return self._names


async def refused(image: str, *names: str) -> NotFoundError:
    with pytest.raises(NotFoundError) as told:
        await pushing.push(Engine(*names), image, Notes(), cluster="demo")  # type: ignore[arg-type]
    return told.value


async def test_the_tags_that_there_are_are_named() -> None:
    told = await refused("newcomer-app", "newcomer-app:1", "other:1", "<none>:<none>")
    assert str(told) == "the engine has no image newcomer-app:latest"
    assert told.hint == "there is newcomer-app:1: podyard push newcomer-app:1"


async def test_a_tag_that_was_said_is_not_there_either() -> None:
    told = await refused("me/app:3", "me/app:2", "me/app:1")
    assert str(told) == "the engine has no image me/app:3"
    assert told.hint == "there is me/app:1, me/app:2: podyard push me/app:1"


async def test_the_same_name_of_another_registry_may_have_been_meant() -> None:
    assert "ghcr.io/me/app:1" in (await refused("me/app", "ghcr.io/me/app:1")).hint
    assert "there is nginx:1" in (await refused("docker.io/library/nginx:2", "nginx:1")).hint


async def test_of_many_tags_some_are_named() -> None:
    told = await refused("app", *(f"app:{number}" for number in range(1, 8)))
    assert told.hint.startswith("there is app:1, app:2, app:3, app:4, app:5 and 2 more: ")


@pytest.mark.parametrize("names", [[], ["another:1"], ["<none>:<none>", "app@sha256:0123"]])
async def test_where_nothing_is_alike_the_engine_lists_its_images(names: list[str]) -> None:
    assert (await refused("app", *names)).hint == "docker images shows those there are"
