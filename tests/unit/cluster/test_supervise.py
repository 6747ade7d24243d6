"""PID 1: its file, its back-off, its lines."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from podyard.base import supervise
from podyard.base.supervise import Child, Output, Process, SpecError


def write(path: Path, content: object) -> str:
    file = path / "init.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(file)


def test_load(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        {
            "processes": [
                {"name": "a", "argv": ["x", "1"], "once": True},
                {"name": "b", "argv": ["y"], "after": ["a"]},
            ]
        },
    )
    assert supervise.load(file) == [Process("a", ("x", "1"), True), Process("b", ("y",), False, ("a",))]


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        {},
        {"processes": []},
        {"processes": [{"name": "a"}]},
        {"processes": [{"name": "a", "argv": []}]},
        {"processes": [{"name": "a", "argv": [1]}]},
        {"processes": [{"name": "a", "argv": ["x"]}, {"name": "a", "argv": ["x"]}]},
        {"processes": [{"name": "a", "argv": ["x"], "after": ["b"]}]},
        {"processes": [{"name": "a", "argv": ["x"]}, {"name": "b", "argv": ["x"], "after": ["a"]}]},
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, content: object) -> None:
    with pytest.raises(SpecError):
        supervise.load(write(tmp_path, content))


def test_backoff_doubles_to_its_cap() -> None:
    assert [supervise.backoff_s(failures) for failures in (1, 2, 3, 4, 5, 6, 1000)] == [
        0.5,
        1,
        2,
        4,
        8,
        10,
        10,
    ]


def test_a_process_that_was_up_for_long_begins_its_backoff_anew() -> None:
    child = Child(Process("a", ("x",)))
    for now_s in (1.0, 2.0, 3.0):
        child.started_s = now_s
        child.exited(success=False, now_s=now_s)
    assert child.due_s == 3.0 + 2.0
    child.exited(success=True, now_s=child.started_s + supervise.STABLE_S)
    assert child.failures == 1


def test_once_is_done_after_success_only() -> None:
    child = Child(Process("a", ("x",), once=True))
    child.exited(success=False, now_s=1.0)
    assert not child.done
    child.exited(success=True, now_s=2.0)
    assert child.done


def read_all(fd: int) -> bytes:
    os.set_blocking(fd, False)
    data = b""
    while True:
        try:
            data += os.read(fd, 1 << 20)
        except BlockingIOError:
            return data


def test_lines_get_the_name_and_long_ones_are_cut() -> None:
    read_fd, write_fd = os.pipe()
    output = Output(write_fd)
    child = Child(Process("etcd", ("x",)))
    os.write(child.write_fd, b"one\n\ntwo\nhal")
    child.copy_lines(output)
    os.write(child.write_fd, b"f\n" + b"x" * (supervise.MAX_LINE_BYTES + 5))
    child.copy_lines(output, flush_partial=True)
    output.flush()
    lines = read_all(read_fd).split(b"\n")
    assert lines[:4] == [b"etcd | one", b"etcd | ", b"etcd | two", b"etcd | half"]
    assert [len(line) for line in lines[4:6]] == [
        len(b"etcd | ") + supervise.MAX_LINE_BYTES,
        len(b"etcd | ") + 5,
    ]


def test_a_stuck_reader_loses_lines_and_is_told() -> None:
    read_fd, write_fd = os.pipe()
    output = Output(write_fd)
    line = b"x" * 1000
    for _ in range(3000):
        output.line(b"a", line)
        output.flush()
    assert output.pending
    received = b""
    while output.pending:
        received += read_all(read_fd)
        output.flush()
    output.line(b"a", b"back")
    output.flush()
    received += read_all(read_fd)
    kept = received.count(line)
    assert 1000 <= kept < 3000
    assert f"init | {3000 - kept} lines were dropped".encode() in received
    assert received.endswith(b"a | back\n")
