"""`python -m penstock`: the same as the `penstock` command, for nodes where PATH is bare."""

from __future__ import annotations

from penstock.cli.main import program

if __name__ == "__main__":
    program()
