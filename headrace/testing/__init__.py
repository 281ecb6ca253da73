"""Real, small stand-ins for tests: filesystems, clocks, a broker."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.testing.local_broker import LocalBroker

__all__ = ["LocalBroker"]


def __getattr__(name: str) -> Any:
    """Load the broker only for who asks for it: a test of the log needs none of it."""
    if name != "LocalBroker":
        raise AttributeError(f"headrace.testing has no {name}")
    from headrace.testing.local_broker import LocalBroker

    return LocalBroker
