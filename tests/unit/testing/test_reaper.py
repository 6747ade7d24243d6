"""testcontainers' reaper is a second net: without it nothing is lost, and nobody is warned."""

from __future__ import annotations

import pytest
from testcontainers.core import container
from testcontainers.core.config import testcontainers_config

from podyard.testing import reaper


@pytest.fixture
def starts(monkeypatch):
    """How often a reaper was to start that cannot."""
    begun: list[str] = []

    def get_instance() -> None:
        begun.append("once more")
        raise OSError("500 Server Error for http+docker://localhost: registry.example does not answer")

    monkeypatch.setattr(container.Reaper, "get_instance", get_instance)
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", False)
    reaper._runs.cache_clear()
    yield begun
    reaper._runs.cache_clear()


def test_where_it_does_not_start_who_listens_hears_it_in_a_sentence(starts):
    # A warning would fail this test, as it would fail a user's whose warnings are errors.
    notes: list[str] = []
    assert reaper.labels(notes.append) == ()
    (said,) = notes
    assert said == "testcontainers' reaper does not start: what a killed run leaves, the next start removes"


def test_it_is_tried_once_for_all_clusters_of_a_process(starts):
    for _ in range(3):
        reaper.labels(lambda _: None)
    assert len(starts) == 1


def test_where_it_is_switched_off_nobody_hears_of_it(starts, monkeypatch):
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
    assert reaper.labels(pytest.fail) == ()
    assert starts == []
