"""What `podyard kubectl` hands on."""

from __future__ import annotations

import pytest

from podyard.cli.kubectl import kubectl


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "web", "--image=nginx", "--", "sh", "-c", "true"],
        ["--", "-x"],
        ["get", "pods", "-o", "wide", "--help"],
        ["--name", "kubectls-own"],
        [],
    ],
)
def test_every_word_is_handed_on_as_it_is(arguments):
    context = kubectl.make_context("kubectl", list(arguments))
    assert context.params == {"arguments": tuple(arguments)}
