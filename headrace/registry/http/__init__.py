"""The registry over HTTP: Confluent's REST API, a module per noun."""
