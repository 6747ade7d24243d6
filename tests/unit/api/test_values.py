"""Quantities, times, selectors and name formats."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podyard.api import meta, names, quantity, selectors, times
from podyard.api.types import LabelSelector, Time, core_v1


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("0Mi", "0"),
        ("1000m", "1"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("1.", "1"),
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("1.5Gi", "1536Mi"),
        ("1000Ki", "1000Ki"),
        ("0.5Ki", "512"),
        ("1000k", "1M"),
        ("1e3", "1e3"),
        ("12E6", "12e6"),
        ("1E", "1E"),
        ("0.1n", "1n"),
        ("-1.5", "-1500m"),
        ("123456789", "123456789"),
        ("+5", "5"),
    ],
)
def test_canonical_quantities(text: str, canonical: str) -> None:
    assert quantity.canonical(text) == canonical
    assert quantity.canonical(canonical) == canonical


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", quantity.WRONG_FORMAT),
        ("x", quantity.WRONG_FORMAT),
        ("1x", quantity.WRONG_FORMAT),
        ("1 Gi", quantity.WRONG_FORMAT),
        ("1mm", quantity.WRONG_SUFFIX),
        ("1Gii", quantity.WRONG_SUFFIX),
        ("1e", quantity.WRONG_SUFFIX),
        (".", quantity.WRONG_NUMBER),
    ],
)
def test_bad_quantities(text: str, why: str) -> None:
    with pytest.raises(quantity.QuantityError) as caught:
        quantity.parse(text)
    assert str(caught.value) == why


@given(st.integers(-(10**15), 10**15), st.sampled_from((quantity.DECIMAL_SI, quantity.BINARY_SI)))
def test_a_shown_amount_is_the_same_amount(nanos: int, notation: str) -> None:
    assert quantity.parse(str(quantity.Amount(nanos, notation))).nanos == nanos


def test_quantity_arithmetic() -> None:
    one, half = quantity.parse("1"), quantity.parse("500m")
    assert (str(one + half), str(one - half), (one + half).value, half.milli) == ("1500m", "500m", 2, 500)
    listed = {"cpu": core_v1.ResourceRequirements(limits={"cpu": {"string": "2"}}).limits["cpu"]}
    assert str(quantity.total([listed, listed])["cpu"]) == "4"
    assert str(quantity.parse("100n").rounded_to_milli()) == "1m"


@pytest.mark.parametrize(
    ("age_s", "shown"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (599, "9m59s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (28_740, "7h59m"),
        (28_800, "8h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (172_800 + 7200, "2d2h"),
        (691_200, "8d"),
        (63_072_000, "2y"),
        (63_072_000 + 86_400, "2y1d"),
        (252_288_000, "8y"),
        (-1, "0s"),
        (-2.5, "<invalid>"),
    ],
)
def test_ages(age_s: float, shown: str) -> None:
    assert times.age_text(age_s) == shown
    assert meta.age_text(Time(), 5.0) == "<unknown>"


@pytest.mark.parametrize(
    ("nanos", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1500, "1.5µs"),
        (300 * 10**6, "300ms"),
        (3_723_500_000_000, "1h2m3.5s"),
        (60 * 10**9, "1m0s"),
        (-(10**9), "-1s"),
    ],
)
def test_durations(nanos: int, text: str) -> None:
    assert times.duration_text(nanos) == text
    assert times.parse_duration(text) == nanos


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", 'time: invalid duration ""'),
        ("5", 'time: missing unit in duration "5"'),
        ("x", 'time: invalid duration "x"'),
    ],
)
def test_bad_durations(text: str, why: str) -> None:
    with pytest.raises(times.TimeError) as caught:
        times.parse_duration(text)
    assert str(caught.value) == why


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        ("", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "c"}, False),
        ("a!=b", {}, True),
        ("a in (b, c),d", {"a": "c", "d": ""}, True),
        ("a notin (b)", {"a": "b"}, False),
        ("!a", {"a": ""}, False),
        ("a", {"a": ""}, True),
        ("a>5", {"a": "6"}, True),
        ("a<5", {"a": "x"}, False),
        ("a=", {"a": ""}, True),
        ("x.io/a=b", {"x.io/a": "b"}, True),
        ("a in ()", {"a": ""}, True),
    ],
)  # fmt: skip
def test_label_selectors(selector: str, labels: dict[str, str], selected: bool) -> None:
    assert selectors.parse_labels(selector).matches(labels) is selected


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("=x", "unable to parse requirement: found '=', expected: identifier"),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
    ],
)
def test_bad_label_selectors(selector: str, why: str) -> None:
    with pytest.raises(selectors.SelectorError) as caught:
        selectors.parse_labels(selector)
    assert str(caught.value) == why


def test_selector_messages() -> None:
    assert not selectors.from_message(None).matches({})
    assert selectors.from_message(LabelSelector()).matches({"a": "b"})
    wanted = LabelSelector(
        matchLabels={"a": "b"}, matchExpressions=[{"key": "c", "operator": "NotIn", "values": ["d"]}]
    )
    parsed = selectors.from_message(wanted)
    assert (parsed.matches({"a": "b"}), parsed.matches({"a": "b", "c": "d"})) == (True, False)
    with pytest.raises(selectors.SelectorError):
        selectors.from_message(LabelSelector(matchExpressions=[{"key": "c", "operator": "Is"}]))


def test_field_selectors() -> None:
    parsed = selectors.parse_fields(r"spec.nodeName=a\,b,status.phase!=Failed")
    assert parsed.matches({"spec.nodeName": "a,b", "status.phase": "Running"})
    assert not parsed.matches({"spec.nodeName": "a,b", "status.phase": "Failed"})
    assert (parsed.exact("spec.nodeName"), parsed.exact("status.phase")) == ("a,b", None)
    with pytest.raises(selectors.SelectorError, match="can't understand 'foo'"):
        selectors.parse_fields("foo")


def test_name_formats_in_upstreams_words() -> None:
    assert names.dns_label_problems("A") == [
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must "
        "start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for "
        "validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
    ]
    assert names.dns_label_problems("a" * 64) == ["must be no more than 63 bytes"]
    assert names.dns_subdomain_problems("a.b-c.d") == []
    assert names.qualified_name_problems("/a") == ["prefix part must be non-empty"]
    assert names.qualified_name_problems("example.com/my.Name_1") == []
    assert names.label_value_problems("") == []
    assert names.port_name_problems("a--b") == ["must not contain consecutive hyphens"]
    assert names.port_number_problems(0) == ["must be between 1 and 65535, inclusive"]
    assert names.config_key_problems("..a") == ["must not start with '..'"]
    assert names.path_segment_problems("a/b") == ["may not contain '/'"]
    assert names.ip_problems("fe80::1") == []
