import pytest

from headrace.client import patience
from headrace.errors import ErrorCode, KafkaError


class Settling:
    """Fails so many times with a code, then answers."""

    def __init__(self, code: ErrorCode, failures: int) -> None:
        self.code = code
        self.failures = failures
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        if self.asked <= self.failures:
            raise KafkaError(self.code)
        return "answer"


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PAUSE_S", 0.0)


def test_a_failure_that_passes_is_waited_for() -> None:
    ask = Settling(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 5)
    assert patience.patiently(ask) == "answer"
    assert ask.asked == 6


def test_a_failure_that_stays_is_raised_at_once() -> None:
    ask = Settling(ErrorCode.INVALID_REQUEST, 1)
    with pytest.raises(KafkaError, match="INVALID_REQUEST"):
        patience.patiently(ask)
    assert ask.asked == 1


def test_a_code_named_final_does_not_pass() -> None:
    ask = Settling(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 1)
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        patience.patiently(ask, final=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,))
    assert ask.asked == 1


def test_patience_ends() -> None:
    ask = Settling(ErrorCode.LEADER_NOT_AVAILABLE, 10**6)
    with pytest.raises(KafkaError, match="LEADER_NOT_AVAILABLE"):
        patience.patiently(ask)
    assert ask.asked == patience.ATTEMPTS
