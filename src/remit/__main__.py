"""`python -m remit`: the same as the `remit` command, of this interpreter."""

from remit.cli.main import entry

if __name__ == "__main__":
    entry()
