"""PID 1 as a process: restarts each alone, orders, stops."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

DEADLINE_S = 20.0


class Init:
    """`podyard init` with a file of processes; its output as it comes."""

    def __init__(self, folder: Path, processes: list[dict[str, object]]) -> None:
        file = folder / "init.json"
        file.write_text(json.dumps({"processes": processes}), encoding="utf-8")
        self.output = folder / "output"
        with self.output.open("wb") as stdout:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "podyard.base.supervise", "test", "--file", str(file)], stdout=stdout
            )

    def text(self) -> str:
        return self.output.read_text(encoding="utf-8")

    def wait_for(self, pattern: str) -> re.Match[str]:
        deadline_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline_s:
            found = re.search(pattern, self.text())
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError(f"no {pattern!r} in:\n{self.text()}")

    def pids(self, name: str) -> list[int]:
        return [int(pid) for pid in re.findall(rf"init \| {name} started, pid (\d+)", self.text())]


Start = Callable[..., Init]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    begun: list[Init] = []

    def begin(*processes: dict[str, object]) -> Init:
        begun.append(Init(tmp_path, list(processes)))
        return begun[-1]

    yield begin
    for init in begun:
        for name in ("a", "b", "stubborn"):
            for pid in init.pids(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        init.process.kill()
        init.process.wait()


def shell(name: str, script: str, **more: object) -> dict[str, object]:
    return {"name": name, "argv": ["sh", "-c", script], **more}


def test_a_killed_process_is_started_alone(start: Start) -> None:
    init = start(shell("a", "echo hello; exec sleep 60"), shell("b", "exec sleep 60"))
    init.wait_for(r"a \| hello")
    init.wait_for(r"init \| b started")
    os.kill(init.pids("a")[0], signal.SIGKILL)
    init.wait_for(r"init \| a was killed by SIGKILL after .* s; next start in 0\.5 s")
    init.wait_for(r"a \| hello\n(.*\n)*a \| hello")
    assert len(init.pids("b")) == 1
    os.kill(init.pids("b")[0], 0)


def test_failures_back_off_and_a_missing_command_is_no_reason_to_end(start: Start) -> None:
    init = start(shell("a", "exit 3"), {"name": "b", "argv": ["/no/such/command"]})
    init.wait_for(r"init \| a exited with 3 after .* s; next start in 0\.5 s")
    init.wait_for(r"init \| a exited with 3 after .* s; next start in 1\.0 s")
    init.wait_for(r"init \| b cannot be started: .*No such file.*next try in 1\.0 s")
    assert init.process.poll() is None


def test_order_once_then_the_rest(start: Start, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    first = f"if [ -e {mark} ]; then echo made; else touch {mark}; exit 1; fi"
    init = start(shell("b", "exec sleep 60", after=["a"]), shell("a", first, once=True))
    init.wait_for(r"init \| a exited with 0 after [\d.]+ s\n")
    init.wait_for(r"init \| b started")
    lines = init.text().splitlines()
    assert lines.index("a | made") < next(i for i, line in enumerate(lines) if "b started" in line)
    assert len(init.pids("a")) == 2


def test_stop_is_passed_on_and_ends_with_zero(start: Start) -> None:
    script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    init = start(shell("a", script), shell("b", script))
    init.wait_for(r"a \| up")
    init.wait_for(r"b \| up")
    init.process.send_signal(signal.SIGTERM)
    assert init.process.wait(DEADLINE_S) == 0
    assert "a | bye" in init.text()
    assert "b | bye" in init.text()
    assert init.text().endswith("init | stopped\n")


@pytest.mark.slow
def test_a_process_that_ignores_the_stop_is_killed_after_the_grace(start: Start) -> None:
    init = start(shell("stubborn", "trap '' TERM; echo up; while :; do sleep 0.05; done"))
    init.wait_for(r"stubborn \| up")
    init.process.send_signal(signal.SIGTERM)
    assert init.process.wait(DEADLINE_S) == 0
    assert "stubborn was killed by SIGKILL" in init.text()


def test_a_wrong_file_ends_with_two(start: Start) -> None:
    assert start().process.wait(DEADLINE_S) == 2
