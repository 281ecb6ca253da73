"""Sockets, tasks and waiting."""
