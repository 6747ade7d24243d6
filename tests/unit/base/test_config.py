"""Configuration: order of sources, types, and errors that name the place."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from podyard.base.config import ConfigError, TlsFiles, load


@dataclass(frozen=True)
class Config:
    name: str
    period_s: float = 10.0
    apiservers: list[str] = field(default_factory=list)
    tls: TlsFiles | None = None
    verbose: bool = False
    labels: dict[str, str] = field(default_factory=dict)


def written(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return path


def test_flags_win_over_environment_over_file(tmp_path):
    path = written(tmp_path, "name: file\nperiod_s: 3\nverbose: false\n")
    config = load(
        Config,
        path,
        environment={"PODYARD_PERIOD_S": "4"},
        environment_prefix="PODYARD",
        flags={"name": "flag"},
    )
    assert (config.name, config.period_s) == ("flag", 4.0)


def test_nested_values_are_built(tmp_path):
    path = written(tmp_path, "name: a\ntls: {ca: c, cert: d, key: e}\napiservers: ['a:1']\nlabels: {x: y}\n")
    config = load(Config, path)
    assert config.tls == TlsFiles("c", "d", "e")
    assert config.apiservers == ["a:1"]
    assert config.labels == {"x": "y"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nperiod: 3\n", "unknown key 'period'; did you mean 'period_s'"),
        ("period_s: 3\n", "'name' is required"),
        ("name: a\nperiod_s: soon\n", "period_s: float is expected, not str 'soon'"),
        ("name: a\nverbose: 1\n", "verbose: bool is expected"),
        ("name: a\ntls: {ca: c}\n", "tls: 'cert' is required"),
        ("name: a\napiservers: x\n", "apiservers: a list is expected"),
        ("- a\n", "a mapping is expected"),
        ("name: [\n", "cannot read the configuration"),
    ],
)
def test_errors_say_where_and_what(tmp_path, text, message):
    with pytest.raises(ConfigError, match=r"config\.yaml") as raised:
        load(Config, written(tmp_path, text))
    assert message in str(raised.value)
