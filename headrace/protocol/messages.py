"""Every Kafka message as one value for all its versions, read and written from kio's schemas.

A struct is read and written in steps made once per version. Neighbouring fields of fixed width are
one step, packed together: most of a struct's fields are such.
"""

from headrace.protocol.message_reader import MessageReader, reader_of
from headrace.protocol.message_writer import Packed, element_writer_of, writer_of
from headrace.protocol.primitives import Buffer, Writer
from headrace.protocol.schemas import Message

__all__ = [
    "Message",
    "Packed",
    "pack_element",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]


def read_request(api_key: int, version: int, body: Buffer) -> Message:
    return _read(api_key, version, body, request=True)


def read_response(api_key: int, version: int, body: Buffer) -> Message:
    return _read(api_key, version, body, request=False)


def write_request(api_key: int, version: int, request: Message) -> bytes:
    return _write(api_key, version, request, request=True)


def write_response(api_key: int, version: int, answer: Message) -> bytes:
    return _write(api_key, version, answer, request=False)


def pack_element(api_key: int, version: int, array: str, element: Message) -> bytes:
    """One element of an array at the top of a response, as it is written there."""
    writer = Writer()
    element_writer_of(api_key, version, array)(writer, element)
    return writer.getvalue()


def _read(api_key: int, version: int, body: Buffer, *, request: bool) -> Message:
    message: Message = reader_of(api_key, version, request)(MessageReader(body))
    return message


def _write(api_key: int, version: int, message: Message, *, request: bool) -> bytes:
    writer = Writer()
    writer_of(api_key, version, request)(writer, message)
    return writer.getvalue()
