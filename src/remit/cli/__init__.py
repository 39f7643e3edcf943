"""The command line. Thin: parses words, calls `compose` and `sandbox`, prints."""
