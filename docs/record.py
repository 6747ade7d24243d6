"""Runs the commands of a document and writes down what they print: `python docs/record.py [DOCUMENT]`.

Every line that begins with `$ ` in a block marked `console` is run by bash, in order, in the repository's
root with the environment's `podyard` and kubectl; the lines below it become what it has printed. A command
that fails ends the run, with nothing written. With `--check` nothing is ever written, and the first line of
each output must be alike but for names, numbers and times. `--picture FILE` draws the blocks of one section
as an SVG.

    python docs/record.py                                   docs/tour.md
    python docs/record.py --picture docs/node.svg --section 'A node dies'
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
DEADLINE_S = 180
# Characters of a picture's line; what is longer is cut.
_WIDTH = 96
PROMPT = "$ "

_BLOCK = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.DOTALL | re.MULTILINE)
# Whatever has a digit differs from run to run: names of pods, addresses, ages, counts.
_VARIES = re.compile(r"\S*\d\S*")
# Without the fonts that rich's own form loads from the network.
_SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" \
xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: Menlo, Consolas, DejaVu Sans Mono, monospace; \
font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">
{matrix}
</g></g>
</svg>
"""


@dataclass(frozen=True, slots=True)
class Command:
    """A command and the lines that stand below it."""

    text: str
    output: tuple[str, ...]


def parse(block: str) -> list[Command]:
    """The commands of a console block."""
    commands: list[Command] = []
    for line in block.splitlines():
        if line.startswith(PROMPT):
            commands.append(Command(line.removeprefix(PROMPT), ()))
        elif commands and not commands[-1].output and commands[-1].text.endswith("\\"):
            commands.append(Command(f"{commands.pop().text}\n{line}", ()))
        elif commands:
            last = commands.pop()
            commands.append(Command(last.text, (*last.output, line)))
    return commands


def render(commands: list[Command]) -> str:
    """The block again."""
    return "".join(
        "".join(f"{line}\n" for line in (PROMPT + command.text, *command.output)) for command in commands
    )


def run(command: str) -> Command:
    """Runs it; what it prints is shown as well.

    Raises:
        SystemExit: it failed.
    """
    print(f"{PROMPT}{command}", flush=True)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=REPOSITORY,
        env=os.environ | {"PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    print(done.stdout, end="", flush=True)
    if done.returncode:
        raise SystemExit(f"exit code {done.returncode}")
    return Command(command, tuple(line.rstrip() for line in done.stdout.splitlines()))


def alike(before: Command, after: Command) -> bool:
    """Whether the first lines say the same but for what varies."""

    def shape(command: Command) -> list[list[str]]:
        return [_VARIES.sub("#", line).split() for line in command.output[:1]]

    return shape(before) == shape(after)


def section_of(text: str, title: str) -> str:
    """What stands below a heading."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise SystemExit(f"there is no section {title!r}")
    return found[1]


def picture(text: str) -> str:
    """The console blocks of a text as a terminal's picture."""
    from rich.console import Console
    from rich.text import Text

    commands = [command for block in _BLOCK.findall(text) for command in parse(block)]
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(
            record=True, width=_WIDTH, file=nowhere, color_system="truecolor", force_terminal=True
        )
        for command in commands:
            console.print(Text(PROMPT, style="bold green") + Text(command.text, style="bold white"))
            for line in command.output:
                console.print(Text(line[:_WIDTH]))
        return console.export_svg(title="podyard", code_format=_SVG, unique_id="podyard")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("document", nargs="?", type=Path, default=REPOSITORY / "docs" / "tour.md")
    parser.add_argument("--check", action="store_true", help="write nothing; the outputs must be alike")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw a section instead of running it")
    parser.add_argument("--section", default="", help="which one")
    options = parser.parse_args()
    text = options.document.read_text(encoding="utf-8")
    if options.picture:
        options.picture.write_text(picture(section_of(text, options.section)), encoding="utf-8")
        return
    differing: list[str] = []

    def again(match: re.Match[str]) -> str:
        commands = []
        for before in parse(match[1]):
            after = run(before.text)
            commands.append(after)
            if not alike(before, after):
                differing.append(before.text)
        return render(commands)

    written = _BLOCK.sub(again, text)
    if not options.check:
        options.document.write_text(written, encoding="utf-8")
    elif differing:
        raise SystemExit("says something else now: " + "; ".join(differing))


if __name__ == "__main__":
    main()
