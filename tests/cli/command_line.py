"""The command line run inside the test's process, as a user runs it in a shell."""

import contextlib
import io
import json
import sys
from typing import Any, NamedTuple
from unittest import mock

from headrace.cli.main import main


class Finished(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def table(self) -> list[list[str]]:
        """The rows below the header, cut at blanks."""
        return [line.split() for line in self.lines[1:]]


class CommandLine:
    """Runs `headrace` with every argument on one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Finished:
        out, err = _stream(b""), _stream(b"")
        code = 0
        with (
            mock.patch.object(sys, "argv", ["headrace", *arguments]),
            mock.patch.object(sys, "stdin", _stream(stdin)),
            mock.patch.dict("os.environ", {"HEADRACE_BOOTSTRAP": self.bootstrap}),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                main()
            except SystemExit as leaving:
                code = leaving.code if isinstance(leaving.code, int) else 0
        return Finished(code, _text(out), _text(err))

    def ok(self, *arguments: str, stdin: bytes = b"") -> Finished:
        """Run a command that must succeed."""
        finished = self(*arguments, stdin=stdin)
        assert finished.code == 0, finished
        return finished


def _stream(content: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()
