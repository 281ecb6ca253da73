"""The doorway to any Kafka for everything above the broker."""
