"""Who writes a batch, because the rules for clients do not all bind the coordinators."""

from enum import Enum


class Origin(Enum):
    """A client's Produce, or a coordinator's own record or marker."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
