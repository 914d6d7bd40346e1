"""The command ``checkpoints``."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_provider_checkpoint.cli import exits
from airflow_provider_checkpoint.cli.catalogue import VERBS, Verb
from airflow_provider_checkpoint.cli.parser import UsageError, parse, top_help
from airflow_provider_checkpoint.exceptions import CheckpointError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator, Sequence

    from airflow_provider_checkpoint.layouts import Layout


def command() -> NoReturn:
    """The process: what is installed as ``checkpoints``."""
    leave(main())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. Never raises."""
    typed = sys.argv[1:] if argv is None else list(argv)
    return answered(lambda: _run(typed))


def leave(code: int) -> NoReturn:
    """End the process; after an interrupt at once, for a thread may still read, and Python would wait for it."""
    if code == exits.INTERRUPTED:
        _give_up_streams()
        os._exit(code)
    sys.exit(code)


def answered(work: Callable[[], int]) -> int:
    """Do the work of a command, and turn what the terminal and its user do meanwhile into an exit code."""
    _prepare_streams()
    try:
        with _prompt_interrupt():
            code = work()
            # Here rather than at exit, where Python could only complain about what went wrong.
            with exits.answering():
                sys.stdout.flush()
    except BrokenPipeError:
        _give_up_streams()
        return exits.PIPE_CLOSED
    except exits.AnswerLostError as error:
        sys.stderr.write(f"error: the answer could not be written: {error}\n")
        _give_up_streams()
        return exits.OUTPUT
    except KeyboardInterrupt:
        _tell_interrupted()
        return exits.INTERRUPTED
    return code


def _run(typed: list[str]) -> int:
    if not typed:
        sys.stderr.write(top_help())
        return exits.USAGE
    try:
        arguments = parse(typed)
    except UsageError as error:
        return _tell_usage(error, as_json="--json" in typed)
    except SystemExit as leaving:
        # --help and --version.
        return leaving.code if isinstance(leaving.code, int) else exits.FINE
    return run_verb({verb.name: verb for verb in VERBS}[arguments.verb], arguments)


def run_verb(verb: Verb, arguments: Namespace, open_layout: Callable[[Namespace], Layout] | None = None) -> int:
    """Open the store, do what the verb says, and turn errors into messages and exit codes.

    :param open_layout: opens the store that the arguments name; default: by its address.
    """
    from datetime import UTC, datetime

    from airflow_provider_checkpoint.cli.console import Console, error_document

    console = Console(json=arguments.json, now=datetime.now(UTC), debug=arguments.debug)
    try:
        return verb.load()((open_layout or _by_address)(arguments), arguments, console)
    except CheckpointError as error:
        console.complain(error)
        if console.json:
            console.document({"error": error_document(error)})
        return exits.exit_code(error)
    except (BrokenPipeError, exits.AnswerLostError):
        raise
    except Exception as error:  # noqa: BLE001 - a bug must not look like a finding, nor show a traceback unasked
        return _tell_bug(error, arguments)


def _by_address(arguments: Namespace) -> Layout:
    from airflow_provider_checkpoint.cli.opening import open_layout

    return open_layout(arguments)


# -- errors of the command itself --------------------------------------------------------------------------------


def _tell_usage(error: UsageError, *, as_json: bool) -> int:
    from airflow_provider_checkpoint.cli.text import clean

    sys.stderr.write(f"{error.usage}error: {clean(error.message)}\n")
    if as_json:
        _write_error(kind="UsageError", message=error.message, hint=" ".join(error.usage.split()))
    return exits.USAGE


def _tell_bug(error: Exception, arguments: Namespace) -> int:
    from airflow_provider_checkpoint.cli.text import clean

    if arguments.debug:
        import traceback

        traceback.print_exception(error)
    hint = "This is a bug in this program. Run again with --debug to see where, and report it."
    sys.stderr.write(f"error: {clean(f'{type(error).__name__}: {error}')}\nHINT: {hint}\n")
    if arguments.json:
        _write_error(kind=type(error).__name__, message=str(error), hint=hint)
    return exits.BUG


def _write_error(**error: Any) -> None:
    import json

    sys.stdout.write(json.dumps({"error": {"subject": None, **error}}, indent=2) + "\n")


# -- streams and signals -----------------------------------------------------------------------------------------


def _prepare_streams() -> None:
    """Let no name be unprintable, and let closed streams swallow what is written to them."""
    # The process ends with these files, so nothing closes them before.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _give_up_streams() -> None:
    """Nobody reads what is still in the buffers, and it must not raise when Python ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(null, stream.fileno())
    os.close(null)


#: Seconds that work has to end in an orderly way after Ctrl-C. Reading a large artifact takes longer.
_GRACE = 2.0


@contextmanager
def _prompt_interrupt() -> Iterator[None]:
    """Ctrl-C ends the work in an orderly way if that is quick, else at once; a second one at once in any case.

    Ending at once is safe: every step of the lifecycle survives the death of the process.
    """
    usual = threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not usual:
        yield
        return
    end = threading.Timer(_GRACE, _end_at_once)
    end.daemon = True

    def orderly(_number: int, _frame: object) -> NoReturn:
        signal.signal(signal.SIGINT, lambda *_: _end_at_once())
        end.start()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, orderly)
    try:
        yield
    finally:
        end.cancel()
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end_at_once() -> NoReturn:
    # A progress bar has hidden the cursor.
    _tell_interrupted(b"\x1b[?25h\n" if os.isatty(2) else b"")
    os._exit(exits.INTERRUPTED)


def _tell_interrupted(before: bytes = b"") -> None:
    # Past Python's own buffers, which the interrupted code may hold locked; and stderr may be closed.
    with suppress(OSError):
        os.write(2, before + b"interrupted; whatever was under way can be run again\n")


if __name__ == "__main__":
    command()
