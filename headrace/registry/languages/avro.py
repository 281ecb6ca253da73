"""Avro as a language of the registry."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace.registry.compatibility import avro as compatibility
from headrace.registry.language import Incompatibility, InvalidSchema, ParsedSchema
from headrace.registry.languages import avro_parser, avro_text
from headrace.registry.languages.avro_types import AvroType, Named

NAME: Final = "AVRO"


@dataclass(frozen=True, slots=True, eq=False)
class AvroSchema:
    """A schema of Avro; the types that `referred` names are defined by its references."""

    text: str
    root: AvroType
    names: tuple[str, ...]
    referred: frozenset[str]
    references: Mapping[str, str]

    @property
    def language(self) -> str:
        return NAME

    def normalized(self) -> "AvroSchema":
        text = avro_text.canonical(self.root, set(self.referred), normal=True)
        # Read as one that is stored: it was held to what is asked of a new one before.
        return LANGUAGE.parse(text, self.references, new=False)

    def serialized(self) -> str:
        return self.text

    def resolved(self) -> str:
        return avro_text.canonical(self.root, set())


class _Avro:
    name: Final = NAME

    def parse(self, text: str, references: Mapping[str, str], *, new: bool) -> AvroSchema:
        parsed = avro_parser.parse(text, references, strict=new)
        # A name that the schema defines again, as old ones may, is its own.
        referred = frozenset(parsed.referred.keys() - parsed.declared.keys())
        return AvroSchema(
            avro_text.canonical(parsed.root, set(referred)),
            parsed.root,
            _names(parsed.root, parsed.declared),
            referred,
            dict(references),
        )

    def incompatibilities(
        self, reader: ParsedSchema, writer: ParsedSchema
    ) -> list[Incompatibility]:
        if not isinstance(reader, AvroSchema) or not isinstance(writer, AvroSchema):
            raise InvalidSchema("only Avro schemas can be compared with one another")
        return compatibility.incompatibilities(reader.root, writer.root)


def _names(root: AvroType, declared: Mapping[str, Named]) -> tuple[str, ...]:
    """The root's name first."""
    first = [root.name.full] if isinstance(root, Named) else []
    return tuple(dict.fromkeys([*first, *declared]))


LANGUAGE: Final = _Avro()
