"""Reads a folder of purchasing documents and writes a report, as a small agent without a model would."""
