"""Bytes to values and back, pure."""
