"""Whoever is told that something failed is told what to do next."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import podyard.cluster
from podyard.cluster.errors import ClusterError, NotFoundError, no_cluster


def kinds() -> list[type[ClusterError]]:
    for module in pkgutil.iter_modules(podyard.cluster.__path__, "podyard.cluster."):
        importlib.import_module(module.name)
    found, left = [], [ClusterError]
    while left:
        found.append(left.pop())
        left += found[-1].__subclasses__()
    return found


@pytest.mark.slow
def test_no_kind_of_error_can_be_made_without_a_hint():
    names = {kind.__name__ for kind in kinds()}
    assert {"SpecError", "PreflightError", "NotReadyError", "EngineError", "Busy", "Unreachable"} <= names
    for kind in kinds():
        # mypy refuses a call without a required argument; a default must say something.
        default = inspect.signature(kind.__init__).parameters["hint"].default
        assert default is inspect.Parameter.empty or default.strip(), kind


def test_an_empty_hint_is_none():
    with pytest.raises(AssertionError, match="nobody is told"):
        NotFoundError("it is gone", hint=" ")


def test_every_kind_has_an_exit_code_that_the_help_names():
    from podyard.cli.main import EPILOG

    assert {kind.exit_code for kind in kinds()} == {1, 2, 3, 4, 5}
    for kind in kinds():
        assert f"{kind.exit_code} " in EPILOG
    assert no_cluster("demo").exit_code == 4
