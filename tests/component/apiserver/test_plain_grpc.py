"""A client of plain grpcio with stubs that protoc makes from `proto/`, where podyard is not installed."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from podyard.api import resources
from tests import stubs
from tests.component.apiserver.served import Served
from tests.component.apiserver.wires import JSON, RestWire
from tests.unit.apiserver.test_registry_rows import build as sample

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]
REPOSITORY = Path(__file__).resolve().parents[3]
PROGRAM = Path(__file__).with_name("plain_client.py")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stubs.make(tmp_path_factory.mktemp("stubs"))


async def start(made: Path, folder: Path, program: Path, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *stubs.command(made, program, *arguments),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def test_plain_client(served: Served, made: Path, tmp_path: Path, unique: str) -> None:
    address = f"localhost:{served.grpc_port}"
    process = await start(made, tmp_path, PROGRAM, address, str(served.certificates.folder), unique)
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    assert output.decode().splitlines()[-1:] == ["done"], output.decode()


async def test_the_guides_example(served: Served, made: Path, tmp_path: Path, unique: str) -> None:
    guide = (REPOSITORY / "docs" / "grpc.md").read_text()
    # The other one is run against a whole cluster.
    code, _ = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    program = tmp_path / "example.py"
    # It speaks to the user's own cluster: the same lines, this server's port and files.
    code, ports = re.subn(r"127\.0\.0\.1:\d+", f"127.0.0.1:{served.grpc_port}", code)
    code, folders = re.subn(
        r"(?m)^pki = .*$", f"pki = pathlib.Path({str(served.certificates.folder)!r})", code
    )
    assert ports == folders == 1
    program.write_text(code.replace("admin.", "client."))
    row = resources.by_kind("v1", "Pod")
    await RestWire(served, JSON).create(row, sample(row, unique))
    process = await start(made, tmp_path, program)
    assert process.stdout is not None
    async with asyncio.timeout(60):
        lines = []
        while not any(f"('ADDED', '{unique}')" in line for line in lines):
            line = (await process.stdout.readline()).decode()
            assert line, lines
            lines.append(line)
    process.kill()
    await process.communicate()
