"""Whenever Avro schemas are called compatible, data of the one is read with the other.

The judges, and where they differ from the rules:

- fastavro reads. It takes bytes as a string only if they are UTF-8 (Java puts replacement
  characters), so no other bytes are drawn. In a reader's union it takes the first record of the
  writer's short name, Apache Avro the one whose namespace fits; short names are drawn once. It
  takes a short name for an alias in any namespace, and checks types only as far as there are
  data, so it reads some data that the rules call incompatible.
  A union of the reader that only names an enum makes it fail with a TypeError; such readers are
  left out (`_fastavro_trips`).
- avro, Apache's Python package, judges schemas. What it lacks of the rules is in `_avro_differs`.
"""

import io
import json
import warnings
from random import Random

import avro.schema
import fastavro
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from fastavro.read import SchemaResolutionError
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.registry.language import Incompatibility, InvalidSchema
from headrace.registry.languages.avro import LANGUAGE, AvroSchema
from tests.registry.avro_pairs import Data, Endless, Json, pair, walk

KINDS = {
    "NAME_MISMATCH",
    "FIXED_SIZE_MISMATCH",
    "MISSING_ENUM_SYMBOLS",
    "READER_FIELD_MISSING_DEFAULT_VALUE",
    "TYPE_MISMATCH",
    "MISSING_UNION_BRANCH",
    "READER_FIELD_AMBIGUOUS",
}
# Pairs in one example: drawing an example costs more than judging a pair.
BATCH = 25
# Data tried before a pair called incompatible counts as one where none fails.
TRIED = 12
randoms = st.randoms(use_true_random=True)


def parsed(schema: Json) -> AvroSchema | None:
    """None for a schema that its edits broke: a name whose definition went with a field."""
    try:
        return LANGUAGE.parse(json.dumps(schema), {}, new=True)
    except InvalidSchema:
        return None


def pairs(random: Random, count: int) -> list[tuple[Json, Json]]:
    """Readers and writers, each evolution in both directions."""
    found: list[tuple[Json, Json]] = []
    while len(found) < count:
        first, second = (parsed(each) for each in pair(random))
        if first is None or second is None:
            continue
        # As our text has them, each name is defined before it is used: the judges need that.
        older, newer = json.loads(first.text), json.loads(second.text)
        if _has_data(older, newer):
            both = ((newer, older), (older, newer))
            found += [each for each in both if not _fastavro_trips(each[0])]
    return found


def _fastavro_trips(reader: Json) -> bool:
    """Whether a union of the reader only names an enum, which fastavro then takes for a dict."""
    types = walk(reader)
    enums = {each["name"] for each in types if each["type"] == "enum"}
    holders = [each[key] for each in types for key in ("items", "values") if key in each]
    holders += [field["type"] for each in types for field in each.get("fields", ())]
    unions = [each for each in [reader, *holders] if isinstance(each, list)]
    return any(isinstance(each, str) and each in enums for union in unions for each in union)


def _has_data(*schemas: Json) -> bool:
    try:
        for schema in schemas:
            Data(schema, Random(0)).draw()
    except Endless:
        return False
    return True


def judged(reader: Json, writer: Json) -> list[Incompatibility]:
    ours, theirs = parsed(reader), parsed(writer)
    assert ours is not None
    assert theirs is not None
    return LANGUAGE.incompatibilities(ours, theirs)


class Reading:
    """fastavro between two schemas."""

    def __init__(self, reader: Json, writer: Json, random: Random) -> None:
        self.reader = fastavro.parse_schema(reader, {})
        self.writer = fastavro.parse_schema(writer, {})
        self.data = Data(writer, random)

    def written(self) -> io.BytesIO:
        written = io.BytesIO()
        fastavro.schemaless_writer(written, self.writer, self.data.draw())
        written.seek(0)
        return written

    def read(self, written: io.BytesIO) -> None:
        fastavro.schemaless_reader(written, self.writer, self.reader)
        assert not written.read(), "bytes of the datum are left over"

    def once(self) -> None:
        self.read(self.written())

    def fails(self) -> bool:
        for _ in range(TRIED):
            written = self.written()
            try:
                self.read(written)
            except (SchemaResolutionError, KeyError):
                return True
        return False


@given(randoms)
@settings(max_examples=60)
def test_what_is_called_compatible_is_read(random):
    for reader, writer in pairs(random, BATCH):
        if not judged(reader, writer):
            reading = Reading(reader, writer, random)
            for _ in range(3):
                reading.once()


@given(st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_what_is_called_compatible_is_read_and_a_failure_shrinks(random):
    for reader, writer in pairs(random, 2):
        if not judged(reader, writer):
            Reading(reader, writer, random).once()


def test_most_of_what_is_called_incompatible_has_a_datum_that_fails(record_property):
    random, found, failing = Random(7), 0, 0
    for reader, writer in pairs(random, 1200):
        if judged(reader, writer):
            found += 1
            failing += Reading(reader, writer, random).fails()
    record_property("incompatible pairs", found)
    record_property("share with a datum that fails", round(failing / found, 3))
    assert found > 300
    assert failing / found > 0.9


@given(randoms)
@settings(max_examples=15)
def test_apaches_python_package_agrees(random):
    for reader, writer in pairs(random, BATCH):
        found = judged(reader, writer)
        if not _avro_differs(reader, found):
            assert _avro_compatible(reader, writer) == (not found), (reader, writer, found)


@given(randoms)
@settings(max_examples=6)
def test_whatever_breaks_is_told_in_full(random):
    for reader, writer in pairs(random, BATCH):
        for each in judged(reader, writer):
            assert each.kind in KINDS
            assert each.path.startswith("/")
            assert _resolve(reader, each.path)
            assert len(each.message) > 20


@given(randoms)
@settings(max_examples=8)
def test_a_schema_reads_its_own_data_and_its_text_is_the_same_schema(random):
    for schema, _ in pairs(random, BATCH):
        first = parsed(schema)
        assert first is not None
        again = LANGUAGE.parse(first.text, {}, new=True)
        assert again.text == first.text
        normal = first.normalized()
        assert normal.normalized().text == normal.text
        if not any("more than one" in each.message for each in judged(schema, schema)):
            for reader in (again, normal):
                assert LANGUAGE.incompatibilities(reader, first) == []
                assert LANGUAGE.incompatibilities(first, reader) == []


@given(randoms)
@settings(max_examples=6)
def test_white_space_and_the_order_of_attributes_mean_nothing(random):
    for schema, _ in pairs(random, BATCH):
        first = parsed(schema)
        assert first is not None
        spaced = json.dumps(_shuffled(schema, random), indent=random.randint(0, 4))
        assert LANGUAGE.parse(spaced, {}, new=True).text == first.text


def _shuffled(schema: Json, random: Random) -> Json:
    if isinstance(schema, list):
        return [_shuffled(each, random) for each in schema]
    if not isinstance(schema, dict):
        return schema
    keys = list(schema)
    random.shuffle(keys)
    return {
        key: schema[key] if key == "default" else _shuffled(schema[key], random) for key in keys
    }


def _resolve(schema: Json, path: str) -> bool:
    """Whether the path leads somewhere in the reader's schema, as far as it names no branch."""
    for step in path.strip("/").split("/"):
        if isinstance(schema, dict) and step in schema:
            schema = schema[step]
        elif isinstance(schema, list) and step.isdigit() and int(step) < len(schema):
            schema = schema[int(step)]
        else:
            # A branch of the writer's union, or a type that is written elsewhere by name.
            return step == "" or step.isdigit() or isinstance(schema, str | list)
    return True


def _avro_compatible(reader: Json, writer: Json) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        readers = avro.schema.parse(json.dumps(reader))
        writers = avro.schema.parse(json.dumps(writer))
        result = ReaderWriterCompatibilityChecker().get_compatibility(readers, writers)
    return result.compatibility is SchemaCompatibilityType.compatible


def _avro_differs(reader: Json, found: list[Incompatibility]) -> bool:
    """Its aliases of types have no namespace, and it never finds two fields for one."""
    aliases = any("aliases" in each for each in walk(reader) if "name" in each)
    return aliases or any("more than one" in each.message for each in found)


@pytest.mark.parametrize("seed", [3, 1009])
def test_pairs_are_of_both_sorts(seed):
    verdicts = [not judged(reader, writer) for reader, writer in pairs(Random(seed), 200)]
    assert 40 < sum(verdicts) < 180
