"""What the documents name exists: modules, files and links."""

from __future__ import annotations

import re
from pathlib import Path

import grpc
import pytest

from podyard.api import errors

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
]
# Paths in backquotes that begin with one of our folders.
NAMED = re.compile(
    r"`((?:podyard|apiserver|scheduler|controller_manager|kubelet|proxy|tests|compose|proto|docs)/[\w./*{},-]*)`"
)
LINKED = re.compile(r"\]\(([^)#:]+)\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_that_a_document_names_is_there(document):
    text = document.read_text(encoding="utf-8")
    named = set(NAMED.findall(text))
    missing = {name for name in named if not any(REPOSITORY.glob(name.rstrip("/")))}
    assert missing == set()
    linked = {target for target in LINKED.findall(text) if not (document.parent / target).exists()}
    assert linked == set()


def test_the_guide_to_grpc_names_every_error():
    names = {code.value[0]: code.name for code in grpc.StatusCode}
    rows = [f"| {cls.http_code} {cls.reason} | `{names[cls.grpc_code]}` |" for cls in errors.CLASSES.values()]
    text = (REPOSITORY / "docs" / "grpc.md").read_text(encoding="utf-8")
    assert "\n".join(rows) in text
