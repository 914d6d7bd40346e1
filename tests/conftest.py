"""Servers and stores that several test folders share."""

from __future__ import annotations

import logging
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import hypothesis
import pytest

from tests.contract.proxy import Proxy
from tests.servers import AzureServer, S3Server, ServerError, Servers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Server = TypeVar("Server")

# The process that runs the tests, or steers those that do, owns the servers; workers find them by these names.
_FOLDER = "CHECKPOINT_TEST_SERVERS"
_OWNER = "CHECKPOINT_TEST_OWNER"


# How long a case takes says nothing about whether it is right, and machines are loaded.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    # It says at the very end, when nobody listens any more, that it closes a connection.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    if not hasattr(config, "workerinput"):
        os.environ[_FOLDER] = tempfile.mkdtemp(prefix="checkpoint-servers-")
        os.environ[_OWNER] = str(os.getpid())


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        _servers().stop()


#: What tests count, by the name under which they record it.
_TALLIES = ("crash points", "meetings of two steps", "race rounds", "state machine examples", "state machine steps")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much was enumerated and tried: a run that tried nothing passes as well."""
    counts: Counter[str] = Counter()
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if getattr(report, "when", None) == "call":
            counts.update({name: value for name, value in report.user_properties if name in _TALLIES})
    if counts:
        terminalreporter.write_line(", ".join(f"{counts[name]:,} {name}" for name in _TALLIES if name in counts))


def _servers() -> Servers:
    return Servers(Path(os.environ[_FOLDER]), int(os.environ[_OWNER]))


@pytest.fixture(scope="session")
def seaweedfs() -> S3Server:
    """A real S3 server that honours conditions and checks signatures."""
    return _started(_servers().seaweedfs)


@pytest.fixture(scope="session")
def rclone() -> S3Server:
    """An S3 server that takes conditions and ignores them."""
    return _started(_servers().rclone)


@pytest.fixture(scope="session")
def azurite() -> AzureServer:
    """Azure's own emulator. A run without it would say nothing about Azure, so its absence is a failure."""
    return _started(_servers().azurite)


def _started(start: Callable[[], Server]) -> Server:
    try:
        return start()
    except ServerError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def proxy(seaweedfs: S3Server) -> Iterator[Proxy]:
    """A proxy in front of SeaweedFS that loses, delays and falsifies answers on command."""
    with Proxy(seaweedfs.endpoint) as running:
        yield running
