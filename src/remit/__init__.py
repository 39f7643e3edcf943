"""Remit holds an agent's program inside an envelope that the kernel enforces."""

__version__ = "0.1.0"
