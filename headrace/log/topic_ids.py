"""Whose directory a partition is: the file partition.metadata."""

import logging
import uuid

from headrace.log.checkpoints import (
    PARTITION_METADATA,
    read_partition_metadata,
    write_partition_metadata,
)
from headrace.log.filesystem import Filesystem, join

logger = logging.getLogger(__name__)


def load_topic_id(filesystem: Filesystem, directory: str) -> uuid.UUID | None:
    """The topic a directory belongs to; None if it does not say, or not legibly."""
    path = join(directory, PARTITION_METADATA)
    if not filesystem.exists(path):
        return None
    try:
        return read_partition_metadata(filesystem.read(path))
    except ValueError as error:
        logger.warning("topic id unreadable file=%s reason=%s", path, error)
        return None


def save_topic_id(filesystem: Filesystem, directory: str, topic_id: uuid.UUID) -> str:
    """Write it down, not yet synced; returns the path, for the next sync to include."""
    path = join(directory, PARTITION_METADATA)
    file = filesystem.open(path, create=True)
    file.truncate(0)
    file.write_at(0, write_partition_metadata(topic_id))
    return path
