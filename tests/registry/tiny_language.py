"""A schema language small enough to see through: words are fields, `b?` has a default.

`@name` stands for the fields of the schema referred to by that name; `!` is a mistake.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headrace.registry.language import Incompatibility, InvalidSchema, ParsedSchema


@dataclass(frozen=True)
class TinySchema:
    language: str
    text: str
    resolved_words: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return ()

    def normalized(self) -> "TinySchema":
        return TinySchema(self.language, " ".join(sorted(self.text.split())), self.resolved_words)

    def serialized(self) -> str:
        return f"serialized({self.text})"

    def resolved(self) -> str:
        return " ".join(self.resolved_words)


@dataclass(frozen=True)
class TinyLanguage:
    name: str

    def parse(self, text: str, references: Mapping[str, str], *, new: bool) -> TinySchema:
        known: dict[str, list[str]] = {}
        for name, referred in references.items():
            known[name] = list(_words(referred, known))
        words = tuple(_words(text, known))
        return TinySchema(self.name, " ".join(text.split()), words)

    def incompatibilities(
        self, reader: ParsedSchema, writer: ParsedSchema
    ) -> list[Incompatibility]:
        written = {word.rstrip("?") for word in writer.resolved().split()}
        return [
            Incompatibility("FIELD_MISSING", f"/{word}", f"field {word} has no default")
            for word in reader.resolved().split()
            if not word.endswith("?") and word not in written
        ]


def _words(text: str, known: Mapping[str, list[str]]) -> Iterator[str]:
    for word in text.split():
        if "!" in word:
            raise InvalidSchema(f"{word} is a mistake")
        if word.startswith("@"):
            if word[1:] not in known:
                raise InvalidSchema(f"{word[1:]} is not referred to")
            yield from known[word[1:]]
        else:
            yield word


TINY_LANGUAGES = {name: TinyLanguage(name) for name in ("AVRO", "JSON", "PROTOBUF")}
