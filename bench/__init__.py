"""Headrace beside Apache Kafka: the same work, the same machine, the same run."""
