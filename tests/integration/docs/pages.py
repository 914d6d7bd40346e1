"""Pages of the documentation as steps: commands with what they answer, and pieces of Python.

A block of ``console`` holds commands, each after ``$ `` and continued over lines that end with a backslash; what stands
below a command is its answer. In an answer ``...`` stands for anything. ``# exit code 1`` behind a command says that it
ends so. A comment ``<!-- $ command -->`` is run as well and not shown: it makes the trouble that a page then cures.
After ``<!-- file: counts.py -->`` comes the content of a file that commands name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]

_FENCE = re.compile(r"(?P<indent> *)```(?P<language>[\w{}-]*)(?P<rest>.*)")
_HIDDEN = re.compile(r"<!-- \$ (?P<command>.*) -->")
_FILE = re.compile(r"<!-- file: (?P<name>[\w.]+) -->")
_EXIT = re.compile(r"# .*\bexit code (?P<code>\d+)\b")
_INLINE = re.compile(r"(?<!`)`(?P<code>[^`]+)`(?!`)")
#: Languages of blocks that show something and are not run.
SHOWN = frozenset({"ini", "json", "text", "toml", "{toctree}", "{eval-rst}"})


@dataclass(frozen=True, slots=True)
class Command:
    page: str
    line: int
    text: str
    answer: str = ""
    """What the page shows below it; empty if it shows nothing."""

    @property
    def exit_code(self) -> int:
        said = _EXIT.search(self.text)
        return 0 if said is None else int(said["code"])

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Snippet:
    page: str
    line: int
    code: str


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    line: int
    lines: list[str]


def pages() -> list[str]:
    """Every page, by its path from the root of the repository."""
    return ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]


def commands(page: str) -> list[Command]:
    """The commands of a page, hidden ones too, in order."""
    text = (ROOT / page).read_text()
    found = [each for block in blocks(text) if block.language == "console" for each in _commands(page, block)]
    for number, line in enumerate(text.splitlines(), 1):
        hidden = _HIDDEN.fullmatch(line.strip())
        if hidden is not None:
            found.append(Command(page, number, hidden["command"]))
    return sorted(found, key=lambda command: command.line)


def snippets(page: str) -> list[Snippet]:
    text = (ROOT / page).read_text()
    return [
        Snippet(page, block.line, "\n".join(block.lines) + "\n") for block in blocks(text) if block.language == "python"
    ]


def files(page: str) -> dict[str, str]:
    """Files that a page shows whole, by the names that its commands use."""
    found = {}
    name = ""
    lines = (ROOT / page).read_text().splitlines()
    shown = {block.line: "\n".join(block.lines) + "\n" for block in blocks("\n".join(lines))}
    for number, line in enumerate(lines, 1):
        named = _FILE.fullmatch(line)
        if named is not None:
            name = named["name"]
        elif name and number in shown:
            found[name] = shown[number]
            name = ""
    return found


def inline_code(page: str) -> list[str]:
    """What stands between backticks in the running text."""
    text = (ROOT / page).read_text()
    lines = text.splitlines()
    for block in blocks(text):
        for number in range(block.line, block.line + len(block.lines)):
            lines[number - 1] = ""
    return [" ".join(match["code"].split()) for match in _INLINE.finditer("\n".join(lines))]


def blocks(text: str) -> Iterator[Block]:
    """Fenced blocks, with the number of their first line."""
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        opened = _FENCE.fullmatch(line)
        if opened is None:
            continue
        indent = opened["indent"]
        inside = []
        for _, each in lines:
            if each.strip() == "```":
                break
            inside.append(each.removeprefix(indent))
        yield Block(opened["language"], number + 1, inside)


def _commands(page: str, block: Block) -> Iterator[Command]:
    lines = iter(enumerate(block.lines, block.line))
    command: tuple[int, str] | None = None
    answer: list[str] = []
    for number, line in lines:
        if not line.startswith("$ "):
            answer.append(line)
            continue
        if command is not None:
            yield Command(page, *command, _trimmed(answer))
        text = line.removeprefix("$ ")
        while text.endswith("\\"):
            text = text.removesuffix("\\") + next(lines)[1].strip()
        command, answer = (number, text), []
    if command is not None:
        yield Command(page, *command, _trimmed(answer))


def _trimmed(lines: list[str]) -> str:
    return "\n".join(lines).strip("\n")
