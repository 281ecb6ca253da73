"""Java's properties format: names and values, one to a logical line."""

import re
from collections.abc import Iterator

# A name ends at the first blank, = or : that no backslash guards.
_NAME = re.compile(r"((?:\\.|[^\\ \t\f=:])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Values by name; a name given twice has its last value, as in Java."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _NAME.fullmatch(line)
        if match is not None:
            found[_unescaped(match[1])] = _unescaped(match[2])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    parts: list[str] = []
    for raw in re.split(r"\r\n|\n|\r", text):
        line = raw.lstrip(" \t\f")
        if not parts and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        continues = backslashes % 2 == 1
        parts.append(line[:-1] if continues else line)
        if not continues:
            yield "".join(parts)
            parts = []
    if parts:
        yield "".join(parts)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_letter, text)


def _letter(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) == 5:
        return chr(int(code[1:], 16))
    return _LETTERS.get(code, code)
