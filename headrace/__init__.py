"""Event streaming in one install: a durable log that speaks Kafka's protocol."""

__version__ = "0.1.0"
