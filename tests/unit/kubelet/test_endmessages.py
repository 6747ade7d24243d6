"""Termination messages: a container's own file, and the end of its log where that is empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubelet import endmessages
from kubelet.endmessages import EndMessages
from kubelet.runtime.base import EXITED, RuntimeContainer
from podyard.api.types import Pod


@pytest.fixture
def pod() -> Pod:
    made = Pod(metadata={"name": "web", "namespace": "default", "uid": "u1"})
    made.spec.containers.add(name="web", terminationMessagePolicy="File")
    return made


def write(path: str, text: str) -> None:
    Path(path).write_text(text)


def ended(exit_code: int = 1) -> RuntimeContainer:
    return RuntimeContainer("c1", "s1", "u1", "web", 2, EXITED, 0.0, exit_code=exit_code)


async def test_what_a_container_writes_is_read_up_to_its_bound(tmp_path, pod):
    messages = EndMessages(tmp_path)
    path = await messages.prepare("u1", "web", 2)
    write(path, "x" * 5000)
    assert await messages.read(pod, pod.spec.containers[0], ended()) == "x" * 4096


async def test_anyone_may_write_it_and_a_new_container_begins_empty(tmp_path, pod):
    messages = EndMessages(tmp_path)
    path = await messages.prepare("u1", "web", 2)
    assert (tmp_path / "pods/u1/containers/web/2").stat().st_mode & 0o777 == 0o666
    write(path, "old")
    await messages.prepare("u1", "web", 2)
    assert await messages.read(pod, pod.spec.containers[0], ended()) == ""


@pytest.mark.parametrize(
    ("policy", "exit_code", "expected"),
    [("File", 1, ""), ("FallbackToLogsOnError", 0, ""), ("FallbackToLogsOnError", 1, "its last 80 lines")],
)
async def test_the_log_stands_in_only_for_failures_and_only_if_asked(
    tmp_path, monkeypatch, pod, policy, exit_code, expected
):
    monkeypatch.setattr(endmessages, "log_directory", lambda pod: str(tmp_path / "logs"))
    log = tmp_path / "logs/web/2.log"
    log.parent.mkdir(parents=True)
    lines = [f"2026-01-01T00:00:00.{n:09d}Z stdout F line {n}\n" for n in range(100)]
    log.write_text("".join(lines))
    messages = EndMessages(tmp_path)
    pod.spec.containers[0].terminationMessagePolicy = policy
    text = await messages.read(pod, pod.spec.containers[0], ended(exit_code))
    if not expected:
        assert text == ""
    else:
        assert text.splitlines() == [f"line {n}" for n in range(20, 100)]


async def test_a_log_in_place_of_a_message_is_cut(tmp_path, monkeypatch, pod):
    monkeypatch.setattr(endmessages, "log_directory", lambda pod: str(tmp_path / "logs"))
    log = tmp_path / "logs/web/2.log"
    log.parent.mkdir(parents=True)
    log.write_text("2026-01-01T00:00:00Z stderr F " + "y" * 9000 + "\n")
    pod.spec.containers[0].terminationMessagePolicy = "FallbackToLogsOnError"
    text = await EndMessages(tmp_path).read(pod, pod.spec.containers[0], ended())
    assert text == "y" * 2047 + "\n"


async def test_a_crash_loop_leaves_only_the_last_files(tmp_path, pod):
    messages = EndMessages(tmp_path)
    for attempt in range(12):
        await messages.prepare("u1", "web", attempt)
    left = (tmp_path / "pods/u1/containers/web").iterdir()
    assert sorted(int(path.name) for path in left) == [10, 11]
