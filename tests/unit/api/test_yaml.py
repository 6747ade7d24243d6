"""YAML in and out: what goes out is read back the same; texts that are meant to harm are refused."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from podyard.api import yaml_json

SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner))
LOOKS_LIKE = [
    "", "~", "null", "y", "n", "yes", "on", "Off", "true", "0", "07", "0o17", "0x1f", "0b1", "1_000", "0_",
    "1e3", "12e45", ".5", "5.", "-1", "+1", "1:30", "2026-01-01", "<<", "=", "-", "?", ":", "a: b", "# a",
    "'", '"', "0x", "0b_", "0o_", "0x_", "[", "{", "|", ">", "@", "`", "%", "!a", "&a", "*a", " a", "a ",
    "a\nb", "\t", "\x85",
]  # fmt: skip


@given(VALUES)
def test_what_goes_out_comes_back(value: object) -> None:
    assert yaml_json.parse(yaml_json.dump(value)).value == value


@pytest.mark.parametrize("text", LOOKS_LIKE)
def test_a_string_stays_one(text: str) -> None:
    value = {"labels": {"a": text, text: "key"}}
    assert yaml_json.parse(yaml_json.dump(value)).value == value
    # Readers by the usual rules of YAML 1.1 agree.
    assert yaml.safe_load(yaml_json.dump(value)) == value


@pytest.mark.parametrize("text", ["0x", "0b_", "0o_", "0x_"])
def test_a_prefix_is_no_number(text: str) -> None:
    assert yaml_json.parse(text).value == text


def test_aliases_are_expanded() -> None:
    assert yaml_json.parse("a: &x {b: [1, 2]}\nc: *x\nd: [*x, *x]").value == {
        "a": {"b": [1, 2]}, "c": {"b": [1, 2]}, "d": [{"b": [1, 2]}, {"b": [1, 2]}]
    }  # fmt: skip


def test_aliases_of_aliases_are_refused() -> None:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    with pytest.raises(yaml_json.YamlError, match="excessive aliasing"):
        yaml_json.parse("\n".join(lines))
    with pytest.raises(yaml_json.YamlError):
        yaml_json.parse("&a [*a]")
