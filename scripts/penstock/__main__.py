"""`python -m penstock`: the same as the `penstock` command."""

from penstock.host import interpreter


def program() -> None:
    """Run the `penstock` command; does not return. Until the command sets its own handlers, SIGINT ends the
    process without a traceback."""
    interpreter.isolate()
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from penstock.cli.main import program as run

    run()


if __name__ == "__main__":
    program()
