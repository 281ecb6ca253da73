"""The syntax of patterns that subscribe to topics: RE2's, without captures and laziness.

What RE2 cannot do (backreferences, lookaround) is refused as RE2 refuses it. Topic names are ASCII
letters, digits, dots, dashes and underscores, so a class is the set of those that it matches.
"""

from typing import Final, NamedTuple

MAX_REPEAT = 1000
"""RE2's own limit on the number in braces."""

MAX_DEPTH = 100

_LOWER = "abcdefghijklmnopqrstuvwxyz"
_DIGITS = frozenset("0123456789")
WORD = frozenset(_LOWER + _LOWER.upper() + "_") | _DIGITS
ALPHABET: Final = WORD | frozenset("-.")
_NOTHING: frozenset[str] = frozenset()

_PERL = {"d": _DIGITS, "w": WORD, "s": _NOTHING}
_CONTROL = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_POSIX = {
    "alnum": WORD - {"_"},
    "alpha": WORD - _DIGITS - {"_"},
    "ascii": ALPHABET,
    "blank": _NOTHING,
    "cntrl": _NOTHING,
    "digit": _DIGITS,
    "graph": ALPHABET,
    "lower": frozenset(_LOWER),
    "print": ALPHABET,
    "punct": frozenset("-._"),
    "space": _NOTHING,
    "upper": frozenset(_LOWER.upper()),
    "word": WORD,
    "xdigit": _DIGITS | frozenset("abcdefABCDEF"),
}
_UNICODE = {
    "L": _POSIX["alpha"],
    "Lu": _POSIX["upper"],
    "Ll": _POSIX["lower"],
    "N": _DIGITS,
    "Nd": _DIGITS,
    "P": _POSIX["punct"],
    "Pc": frozenset("_"),
    "Pd": frozenset("-"),
    "Po": frozenset("."),
    "Latin": _POSIX["alpha"],
    "Common": ALPHABET - _POSIX["alpha"],
}


class Chars(NamedTuple):
    """One character of a set."""

    found: frozenset[str]


class Edge(NamedTuple):
    """No character, but a condition on the place: at the start, the end, a word's boundary."""

    kind: str


class Sequence(NamedTuple):
    """One part after another."""

    parts: tuple["Node", ...]


class Choice(NamedTuple):
    """Any one of several."""

    options: tuple["Node", ...]


class Repeat(NamedTuple):
    """A part so many times; no `most` is no limit."""

    part: "Node"
    least: int
    most: int | None


Node = Chars | Edge | Sequence | Choice | Repeat


class Parser:
    """Reads one pattern from left to right."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._ignore_case = False
        self._depth = 0
        self._names: set[str] = set()

    def parse(self) -> Node:
        node = self._choice()
        if self._at < len(self._text):
            raise ValueError("unexpected )")
        return node

    # Structure.

    def _choice(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError("expression nests too deeply")
        ignore_case = self._ignore_case
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        self._ignore_case = ignore_case
        self._depth -= 1
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._at < len(self._text) and self._peek() not in "|)":
            node = self._atom()
            if node is not None:
                parts.append(self._repeated(node))
        return Sequence(tuple(parts))

    def _repeated(self, node: Node) -> Node:
        repeated = False
        while bounds := self._bounds():
            if repeated:
                raise ValueError("invalid nested repetition operator")
            repeated = True
            # Lazy or not, the whole name has to match.
            self._take("?")
            node = Repeat(node, *bounds)
        return node

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        return self._braces()

    def _braces(self) -> tuple[int, int | None] | None:
        end = self._text.find("}", self._at)
        if self._peek() != "{" or end < 0:
            return None
        least, comma, most = self._text[self._at + 1 : end].partition(",")
        if not _is_number(least) or (most and not _is_number(most)):
            # As in RE2, braces that hold no numbers are just braces.
            return None
        self._at = end + 1
        first = int(least)
        last = first if not comma else int(most) if most else None
        if max(first, last or 0) > MAX_REPEAT or (last is not None and last < first):
            raise ValueError("invalid repeat count")
        return first, last

    def _atom(self) -> Node | None:
        char = self._next()
        match char:
            case "(":
                return self._group()
            case "[":
                return Chars(self._class())
            case "\\":
                return self._escape()
            case ".":
                return Chars(ALPHABET)
            case "^":
                return Edge("start")
            case "$":
                return Edge("end")
            case "*" | "+" | "?":
                raise ValueError("missing argument to repetition operator")
            case "{":
                self._at -= 1
                if self._braces():
                    raise ValueError("missing argument to repetition operator")
                self._at += 1
                return self._literal(char)
            case _:
                return self._literal(char)

    def _literal(self, char: str) -> Chars:
        return Chars(self._folded(frozenset(char)))

    def _folded(self, found: frozenset[str]) -> frozenset[str]:
        if not self._ignore_case:
            return found
        return found | {each.lower() for each in found} | {each.upper() for each in found}

    # Groups.

    def _group(self) -> Node | None:
        ignore_case = self._ignore_case
        if self._take("?"):
            if self._take("P<") or self._take("<"):
                self._name()
            elif not self._flags():
                # Flags without a group hold until the group around them ends.
                return None
        node = self._choice()
        if not self._take(")"):
            raise ValueError("missing closing )")
        self._ignore_case = ignore_case
        return node

    def _name(self) -> None:
        end = self._text.find(">", self._at)
        name = self._text[self._at : end] if end >= 0 else ""
        if not name or not set(name) <= WORD or name in self._names:
            raise ValueError("invalid named capture")
        self._names.add(name)
        self._at = end + 1

    def _flags(self) -> bool:
        """True if a group follows, False if the flags were all there is."""
        setting, seen = True, ""
        while True:
            char = self._next()
            if char == ":" or (char == ")" and seen):
                return char == ":"
            if char == "-" and setting:
                setting = False
            elif char == "i":
                self._ignore_case = setting
            elif char not in ("m", "s", "U"):
                # Those three are about line ends and laziness, of which names have none.
                raise ValueError("invalid or unsupported Perl syntax")
            seen += char

    # Characters.

    def _escape(self) -> Node:
        char = self._next("trailing \\")
        match char:
            case "A":
                return Edge("start")
            case "z":
                return Edge("end")
            case "b" | "B":
                return Edge(char)
            case "Q":
                return self._quoted()
            case "C":
                return Chars(ALPHABET)
        return Chars(self._folded(self._escaped_set(char)))

    def _quoted(self) -> Node:
        end = self._text.find("\\E", self._at)
        quoted = self._text[self._at :] if end < 0 else self._text[self._at : end]
        self._at = len(self._text) if end < 0 else end + 2
        return Sequence(tuple(self._literal(each) for each in quoted))

    def _escaped_set(self, char: str) -> frozenset[str]:
        if char.lower() in _PERL:
            found = _PERL[char.lower()]
            return found if char.islower() else ALPHABET - found
        if char in "pP":
            return self._unicode(negated=char == "P")
        return frozenset(self._escaped_char(char))

    def _escaped_char(self, char: str) -> str:
        if char in _CONTROL:
            return _CONTROL[char]
        if char == "x":
            return self._hexadecimal()
        if char in "01234567":
            return self._octal(char)
        if char.isalnum() or not char.isascii():
            raise ValueError("invalid escape sequence")
        return char

    def _hexadecimal(self) -> str:
        if self._take("{"):
            end = self._text.find("}", self._at)
            digits = self._text[self._at : end] if end >= 0 else ""
            self._at = end + 1
        else:
            digits = self._text[self._at : self._at + 2]
            self._at += 2
        number = int(digits, 16) if digits and set(digits) <= _POSIX["xdigit"] else -1
        if not 0 <= number <= 0x10FFFF:
            raise ValueError("invalid escape sequence")
        return chr(number)

    def _octal(self, first: str) -> str:
        digits = first
        while len(digits) < 3 and self._peek() and self._peek() in "01234567":
            digits += self._next()
        # One digit but 0 would be a backreference.
        if first != "0" and len(digits) == 1:
            raise ValueError("invalid escape sequence")
        return chr(int(digits, 8))

    def _unicode(self, *, negated: bool) -> frozenset[str]:
        if self._take("{"):
            end = self._text.find("}", self._at)
            name = self._text[self._at : end] if end >= 0 else ""
            self._at = end + 1
        else:
            name = self._next()
        negated ^= name.startswith("^")
        found = _UNICODE.get(name.removeprefix("^"))
        if found is None:
            raise ValueError("invalid character class range")
        return ALPHABET - found if negated else found

    def _class(self) -> frozenset[str]:
        negated = self._take("^")
        found: set[str] = set()
        first = True
        while first or not self._take("]"):
            first = False
            if self._peek() == "[" and self._text.startswith("[:", self._at):
                found |= self._posix()
            else:
                found |= self._class_item()
        folded = self._folded(frozenset(found))
        return ALPHABET - folded if negated else folded

    def _posix(self) -> frozenset[str]:
        end = self._text.find(":]", self._at)
        name = self._text[self._at + 2 : end] if end >= 0 else ""
        members = _POSIX.get(name.removeprefix("^"))
        if members is None:
            raise ValueError("invalid character class range")
        self._at = end + 2
        return ALPHABET - members if name.startswith("^") else members

    def _class_item(self) -> set[str] | frozenset[str]:
        char = self._next("missing closing ]")
        if char == "\\":
            char = self._next("trailing \\")
            if char.lower() in _PERL or char in "pP":
                return self._escaped_set(char)
            char = self._escaped_char(char)
        if self._peek() != "-" or self._text.startswith("-]", self._at):
            return {char}
        self._at += 1
        last = self._next("missing closing ]")
        if last == "\\":
            last = self._escaped_char(self._next("trailing \\"))
        if last < char:
            raise ValueError("invalid character class range")
        return {each for each in ALPHABET if char <= each <= last}

    # The text.

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self, missing: str = "unexpected end of pattern") -> str:
        char = self._peek()
        if not char:
            raise ValueError(missing)
        self._at += 1
        return char

    def _take(self, expected: str) -> bool:
        if self._text.startswith(expected, self._at):
            self._at += len(expected)
            return True
        return False


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
