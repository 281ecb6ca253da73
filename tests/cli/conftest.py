import uuid

import pytest

from tests.cli.command_line import CommandLine


@pytest.fixture
def headrace(bootstrap: str) -> CommandLine:
    return CommandLine(bootstrap)


@pytest.fixture
def topic(headrace: CommandLine) -> str:
    name = f"t-{uuid.uuid4().hex[:12]}"
    headrace.ok("topics", "create", name, "--partitions", "3")
    return name


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"
