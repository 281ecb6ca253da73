"""Offsets to files and back, synchronous."""
