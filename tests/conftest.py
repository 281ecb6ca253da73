import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("dev", max_examples=25, deadline=None)
settings.register_profile(
    "nightly", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """One cluster for the tests that need any Kafka: ours, or HEADRACE_TEST_BOOTSTRAP."""
    elsewhere = os.environ.get("HEADRACE_TEST_BOOTSTRAP")
    if elsewhere:
        yield elsewhere
        return
    from headrace.testing import LocalBroker

    with LocalBroker() as broker:
        yield broker.bootstrap
