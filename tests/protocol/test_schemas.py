from headrace.protocol.schemas import SCHEMAS
from tests.protocol.kio_schemas import schema_files


def test_the_files_say_what_kio_says():
    written = {path.name: path.read_text() for path in SCHEMAS.iterdir()}
    assert written == schema_files(), "run: python -m tests.protocol.kio_schemas"
