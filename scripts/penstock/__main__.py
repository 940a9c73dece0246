"""`python -m penstock`, and the `penstock` command that an installation makes: where the program begins.

Nothing but `interpreter` is imported before `isolate`: until then a module of the working directory or of
PYTHONPATH could be taken in place of the real one.
"""

from penstock.host import interpreter


def program() -> None:
    """Run the `penstock` command; does not return: the process ends by `os._exit` with the command's exit
    status, so no `atexit` handler runs. If the environment sets Python's variables or a locale that is not
    UTF-8, the process first replaces itself by an isolated one (`isolate`). Until the command sets its own
    handlers, SIGINT ends the process without a traceback."""
    interpreter.isolate()
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from penstock.cli.main import program as run

    run()


if __name__ == "__main__":
    program()
