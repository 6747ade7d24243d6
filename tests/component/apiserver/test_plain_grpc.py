"""A client of plain grpcio with stubs that protoc makes from `proto/`, where podyard is not installed."""

from __future__ import annotations

import asyncio
import re
import sys
import sysconfig
from pathlib import Path

import pytest
from grpc_tools import protoc

from podyard.api import resources
from tests.component.apiserver.served import Served
from tests.component.apiserver.wires import JSON, RestWire
from tests.unit.apiserver.test_registry_rows import build as sample

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]
REPOSITORY = Path(__file__).resolve().parents[3]
PROTO = REPOSITORY / "proto"
PROGRAM = Path(__file__).with_name("plain_client.py")

# `-S` leaves out what .pth files add, so the packages are there and our own, editable, is not.
RUN = """
import runpy, sys
sys.path[:0] = sys.argv[1].split(":")
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stubs")
    files = sorted(str(path.relative_to(PROTO)) for path in PROTO.glob("podyard/**/*.proto"))
    files += sorted(str(path.relative_to(PROTO)) for path in PROTO.glob("k8s.io/api*/**/*.proto"))
    made = protoc.main(
        ["protoc", f"-I{PROTO}", f"--python_out={folder}", f"--grpc_python_out={folder}", *files]
    )
    assert made == 0
    return folder


async def start(stubs: Path, folder: Path, program: Path, *arguments: str) -> asyncio.subprocess.Process:
    """A program where only the standard library, the installed packages and the stubs are."""
    paths = [str(stubs), sysconfig.get_path("purelib")]
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        "-u",
        "-c",
        RUN,
        ":".join(paths),
        str(program),
        *arguments,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def test_plain_client(served: Served, stubs: Path, tmp_path: Path, unique: str) -> None:
    address = f"localhost:{served.grpc_port}"
    process = await start(stubs, tmp_path, PROGRAM, address, str(served.certificates.folder), unique)
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    assert output.decode().splitlines()[-1:] == ["done"], output.decode()


async def test_the_readmes_example(served: Served, stubs: Path, tmp_path: Path, unique: str) -> None:
    readme = (REPOSITORY / "README.md").read_text()
    (code,) = (
        block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "import grpc" in block
    )
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
    process = await start(stubs, tmp_path, program)
    assert process.stdout is not None
    async with asyncio.timeout(60):
        lines = []
        while not any(f"('ADDED', '{unique}')" in line for line in lines):
            line = (await process.stdout.readline()).decode()
            assert line, lines
            lines.append(line)
    process.kill()
    await process.communicate()
