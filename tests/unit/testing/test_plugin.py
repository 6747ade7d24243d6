"""The pytest plugin's options: what stands behind them is never lost."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import pytest

from podyard.testing import plugin


class Parser(argparse.ArgumentParser):
    """Takes the plugin's options as pytest's parser does, and files of tests."""

    def __init__(self) -> None:
        super().__init__(exit_on_error=False, allow_abbrev=False)
        self.declared: list[argparse.Action] = []
        plugin.pytest_addoption(self)  # type: ignore[arg-type]
        self.add_argument("files", nargs="*")

    def getgroup(self, *_: str) -> Parser:
        return self

    def addoption(self, *names: str, **settings: Any) -> None:
        self.declared.append(self.add_argument(*names, **settings))


@pytest.fixture
def used(monkeypatch):
    """Runs the session's fixture with options; answers the name and whether the cluster is used again."""

    class Cluster:
        def __init__(self, name: str | None, *, nodes: int, reuse: bool) -> None:
            self.how = (name, reuse)

        def __enter__(self) -> Cluster:
            return self

        def __exit__(self, *_: object) -> None:
            """Nothing was made."""

    monkeypatch.setattr("podyard.testing.cluster.PodyardCluster", Cluster)

    def used(*words: str) -> tuple[str | None, bool]:
        options = Parser().parse_args(words)

        def getoption(name: str) -> Any:
            return getattr(options, name.lstrip("-").replace("-", "_"))

        request = argparse.Namespace(config=argparse.Namespace(getoption=getoption))
        return next(plugin.podyard_cluster.__wrapped__(request)).how

    return used


def test_no_option_takes_a_value_only_if_there_is_one():
    for option in Parser().declared:
        assert option.nargs in (None, 0), option.option_strings


@pytest.mark.parametrize("where", ["test_fix.py", "test_fix.py::test_it"])
@pytest.mark.parametrize("option", [action.option_strings[0] for action in Parser().declared])
def test_no_option_swallows_a_file_of_tests(option, where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("test_fix.py").touch()
    parser = Parser()
    if next(action for action in parser.declared if option in action.option_strings).nargs == 0:
        assert parser.parse_args([option, where]).files == [where]
    else:
        with pytest.raises(argparse.ArgumentError, match=re.escape(f"{where!r} is no ")):
            parser.parse_args([option, where])


def test_which_cluster_is_used_again(used):
    assert used() == (None, False)
    assert used("--podyard-reuse", "test_fix.py") == ("podyard-test", True)
    assert used("--podyard-name", "lab", "test_fix.py") == ("lab", True)
    assert used("--podyard-name=lab", "--podyard-reuse") == ("lab", True)


@pytest.mark.parametrize("nodes", ["0", "501", "-1", "many"])
def test_a_number_of_nodes_that_no_cluster_can_have_is_refused(nodes):
    with pytest.raises(argparse.ArgumentError, match="is no number from 1 to 500"):
        Parser().parse_args([f"--podyard-nodes={nodes}"])
    assert Parser().parse_args(["--podyard-nodes=500"]).podyard_nodes == 500
