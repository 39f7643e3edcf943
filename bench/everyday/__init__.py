"""Ordinary commands, each bare and inside, and what differs. docs/everyday.md tells the last figures."""
