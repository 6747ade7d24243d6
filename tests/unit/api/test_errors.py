"""Errors: the table of reasons, upstream's texts, and the way through a Status and back."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from podyard.api import errors, quoting

TABLE = Path(errors.__file__).parent / "tables" / "error_reasons.tsv"


def table_rows(kind: str) -> list[dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return [
            row for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row["type"] == kind
        ]


@pytest.mark.parametrize(
    "row", [row for row in table_rows("StatusReason") if row["value"]], ids=lambda r: r["value"]
)
def test_every_reason_has_its_class_and_code(row: dict[str, str]) -> None:
    assert errors.CLASSES[row["value"]].http_code == int(row["http_code"])


def test_field_error_texts_use_the_prefixes_of_the_table() -> None:
    made = {
        cause.reason: cause.message
        for cause in (
            errors.duplicate("p", "x"),
            errors.forbidden("p", "d"),
            errors.invalid("p", "x", "d"),
            errors.not_found("p", "x"),
            errors.not_supported("p", "x", ["b", "a"]),
            errors.required("p"),
            errors.too_long("p", 5),
            errors.too_many("p", 3, 2),
            errors.too_few("p", 0, 1),
            errors.internal_field("p", "d"),
        )
    }
    prefixes = {
        row["value"]: row["details"].split('"')[1] for row in table_rows("FieldErrorText") if row["details"]
    }
    assert {reason: text for reason, text in made.items() if not text.startswith(prefixes[reason])} == {}


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (errors.NotFound.of("pods", "web"), 'pods "web" not found'),
        (
            errors.NotFound.of("leases", "a", "coordination.k8s.io"),
            'leases.coordination.k8s.io "a" not found',
        ),
        (errors.AlreadyExists.of("pods", "web"), 'pods "web" already exists'),
        (
            errors.Conflict.of("pods", "web"),
            'Operation cannot be fulfilled on pods "web": the object has been modified; '
            "please apply your changes to the latest version and try again",
        ),
        (
            errors.Conflict.precondition("pods", "web", "UID", "a", "b"),
            'Operation cannot be fulfilled on pods "web": Precondition failed: '
            "UID in precondition: a, UID in object meta: b",
        ),
        (errors.Forbidden.of("pods", "web", "no"), 'pods "web" is forbidden: no'),
        (errors.Forbidden.of("pods", "", "no"), "pods is forbidden: no"),
        (errors.Forbidden.of("", "", "no"), "forbidden: no"),
        (errors.Expired.too_old(5, 9), "too old resource version: 5 (9)"),
        (errors.Timeout.too_large_version(9, 5), "Timeout: Too large resource version: 9, current: 5"),
        (errors.MethodNotAllowed.of("pods", "create"), 'create is not supported on resources of kind "pods"'),
        (errors.InternalError.of("boom"), "Internal error occurred: boom"),
    ],
)
def test_messages(error: errors.ApiError, text: str) -> None:
    assert error.message == text == str(error)


def test_invalid_lists_all_causes_once() -> None:
    one = errors.required("spec.containers")
    two = errors.not_supported("spec.restartPolicy", "x", ["Never", "Always"])
    error = errors.Invalid.of("Pod", "web", [one, two, one])
    assert error.message == (
        'Pod "web" is invalid: [spec.containers: Required value, '
        'spec.restartPolicy: Unsupported value: "x": supported values: "Always", "Never"]'
    )
    assert errors.Invalid.of("Lease", "a", [one], "coordination.k8s.io").message == (
        'Lease.coordination.k8s.io "a" is invalid: spec.containers: Required value'
    )
    status = error.to_status()
    assert (status.code, status.reason, status.details.kind, len(status.details.causes)) == (
        422,
        "Invalid",
        "Pod",
        3,
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", r'"a\nb"'),
        ('a"b', r'"a\"b"'),
        (5, "5"),
        (True, "true"),
        (None, '"null"'),
        ({"a": "b"}, '{"a":"b"}'),
        (["x"], '["x"]'),
        ("\x01", r'"\x01"'),
        ("é", '"é"'),
    ],
)
def test_values_are_shown_as_upstream_shows_them(value: object, text: str) -> None:
    assert quoting.shown(value) == text


@pytest.mark.parametrize("cls", errors.CLASSES.values(), ids=lambda cls: cls.__name__)
def test_status_and_back(cls: type[errors.ApiError]) -> None:
    error = cls(
        "text", group="g", kind="k", name="n", uid="u", causes=[errors.required("a")], retry_after_s=3
    )
    back = errors.from_status(error.to_status())
    assert type(back) is cls
    assert back.to_status() == error.to_status()


def test_unknown_reason_goes_by_code_and_keeps_its_reason() -> None:
    status = errors.Status(status="Failure", message="m", reason="Odd", code=404)
    error = errors.from_status(status)
    assert isinstance(error, errors.NotFound)
    assert error.to_status().reason == "Odd"
