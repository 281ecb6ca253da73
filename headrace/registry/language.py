"""What the registry asks of a schema language, so that subjects and routes know none of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from headrace.errors import HeadraceError


class InvalidSchema(HeadraceError):
    """The text is not a schema of its language; the message says what is wrong, and where."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema's name for another one, and where that one is registered."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One thing that breaks when data of the writer is read with the reader's schema."""

    kind: str
    path: str
    message: str


class ParsedSchema(Protocol):
    """A schema that its language accepted."""

    @property
    def language(self) -> str:
        """AVRO, JSON or PROTOBUF."""
        ...

    @property
    def text(self) -> str:
        """The canonical text: what is stored and given out."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """What it declares, for schemas that refer to it."""
        ...

    def normalized(self) -> "ParsedSchema":
        """The same schema where all that means nothing is in one fixed form."""
        ...

    def serialized(self) -> str:
        """For `format=serialized`: Protobuf as a base64 FileDescriptorProto, others as text."""
        ...

    def resolved(self) -> str:
        """For `format=resolved`: the text with its references put in."""
        ...


class Language(Protocol):
    """One schema language."""

    @property
    def name(self) -> str: ...

    def parse(self, text: str, references: Mapping[str, str], *, new: bool) -> ParsedSchema:
        """Raises InvalidSchema.

        `references` maps each reference's name to that schema's text, those it depends on first.
        A `new` schema is held to rules that those already stored may break.
        """
        ...

    def incompatibilities(
        self, reader: ParsedSchema, writer: ParsedSchema
    ) -> list[Incompatibility]:
        """Why data written with the one cannot be read with the other; empty if it can."""
        ...
