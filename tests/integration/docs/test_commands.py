"""Every command in README.md and docs/ is run as it stands there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs, open_blobs
from airflow_provider_checkpoint.cli.catalogue import VERBS
from tests.integration.docs import scenery
from tests.integration.docs.flip import flip
from tests.integration.docs.pages import ROOT, SHOWN, Command, blocks, commands, files, inline_code, pages, snippets
from tests.integration.docs.world import World, agrees, airflow_environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import S3Server

pytestmark = pytest.mark.timeout(1200)

#: Commands that are not run here, by how they begin, and why.
NOT_RUN = {
    "./dev demo": "a run of its own in CI",
    "./dev test": "would run itself",
    "python -m tests.benchmarks": "takes minutes and says nothing about right or wrong",
}
#: Pages that begin where nothing was written yet below ``/data/checkpoints``.
FROM_NOTHING = {"README.md", "docs/getting-started.md", "docs/writing-pipelines.md"}


def runnable(page: str) -> list[Command]:
    left_out = (*NOT_RUN, "pip install")
    return [command for command in commands(page) if not command.text.startswith(left_out)]


def grouped() -> list[object]:
    """Pages with commands. Those that need an Airflow go to one process: its database takes long to make."""
    found = []
    for page in pages():
        run = runnable(page)
        if run:
            airflow = any(command.text.startswith("airflow ") for command in run)
            marks = [pytest.mark.xdist_group("docs-airflow")] if airflow else []
            found.append(pytest.param(page, marks=marks, id=page))
    return found


# -- running -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("scenery") / "data"
    orders = data / "checkpoints" / "orders"
    orders.mkdir(parents=True)
    scenery.unpack_clicks(data)
    scenery.make_orders(LocalBlobs(orders), datetime.now(UTC))
    flip(orders)
    scenery.leave_orphan(orders)
    subprocess.run([sys.executable, "-c", _GENERATE, str(ROOT / "dags" / "jobs"), str(data / "landing")], check=True)
    return data


_GENERATE = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import orders
orders.generate(pathlib.Path(sys.argv[2]), files=8, orders=50, seed=7)
"""


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An Airflow whose database is there and empty."""
    home = tmp_path_factory.mktemp("airflow")
    environment = World(tmp_path_factory.mktemp("migrating"))._environment() | airflow_environment(home)
    done = subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return home


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path, template: Path) -> World:
    """A page's own world, with an S3 and an Airflow if its commands ask for them."""
    page = request.getfixturevalue("page")
    run = runnable(page)
    made = World(tmp_path)
    scenery.copy(template, tmp_path / "data")
    for name, content in files(page).items():
        (tmp_path / name).write_text(content)
    if page in FROM_NOTHING:
        shutil.rmtree(tmp_path / "data" / "checkpoints" / "orders")
    if any("s3://" in command.text for command in run):
        server: S3Server = request.getfixturevalue("seaweedfs")
        made.endpoint, made.bucket = server.endpoint, _bucket(server)
        options = server.options()
        scenery.make_orders(open_blobs(f"s3://{made.bucket}/checkpoints/orders", options), datetime.now(UTC))
    if any(command.text.startswith("airflow ") for command in run):
        made.airflow = tmp_path / "airflow"
        shutil.copytree(request.getfixturevalue("migrated"), made.airflow)
        settings = made.airflow / "airflow.cfg"
        settings.unlink(missing_ok=True)
    return made


def _bucket(server: S3Server) -> str:
    """A part, of this page alone, of a bucket that is called as in the pages."""
    client = server.client()
    with suppress(client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou):
        client.create_bucket(Bucket="bucket")
    client.close()
    return f"bucket/{uuid4().hex}"


@pytest.mark.parametrize("page", grouped())
def test_every_command_of_the_page_runs_and_answers_as_it_says(page: str, world: World) -> None:
    for command in runnable(page):
        outcome = world.run(command)
        told = f"{command.place}: $ {command.text}\n{outcome.text[-4000:]}"
        assert outcome.code == command.exit_code, f"exit code {outcome.code}, the page says {command.exit_code}: {told}"
        assert agrees(command.answer, outcome.text), f"the page shows\n{command.answer}\n\n{told}"


def test_the_python_of_the_readme_chooses_a_point(seaweedfs: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    code = next(each.code for each in snippets("README.md") if "open_store(" in each.code)
    bucket = _bucket(seaweedfs)
    scenery.make_orders(open_blobs(f"s3://{bucket}/checkpoints/orders", seaweedfs.options()), datetime.now(UTC))
    code = code.replace("s3://bucket", f"s3://{bucket}")
    code = code.replace('{"region": "eu-central-1"}', repr(seaweedfs.options()))
    exec(compile(code, "README.md", "exec"), {})
    assert "seconds=0" in capsys.readouterr().out


# -- without running ---------------------------------------------------------------------------------------------


def test_pages_show_commands_in_blocks_that_are_run() -> None:
    known = SHOWN | {"console", "python"}
    odd = [
        f"{page}:{block.line}: {block.language or 'no language'}"
        for page in pages()
        for block in blocks((ROOT / page).read_text())
        if block.language not in known
    ]
    assert not odd, "blocks whose language is not known here; commands are of 'console'"


def test_blocks_of_commands_begin_with_one() -> None:
    odd = [
        f"{page}:{block.line}"
        for page in pages()
        for block in blocks((ROOT / page).read_text())
        if block.language == "console" and not block.lines[0].startswith("$ ")
    ]
    assert not odd


@pytest.mark.parametrize(
    ("answer", "text", "same"),
    [
        ("", "anything", True),
        ("4 of 4 valid", "4 of 4   valid\n", True),
        ("4 of 4 valid", "3 of 4 valid", False),
        ("ID ... WHY\n...\nDONE", "ID  WHEN  WHY\n1  now  so\nDONE", True),
        ("first\n...\nsecond", "second\nfirst", False),
    ],
)
def test_an_answer_is_compared_word_by_word_but_for_what_is_left_out(answer: str, text: str, same: bool) -> None:
    assert agrees(answer, text) is same


@pytest.mark.parametrize("prefix", NOT_RUN)
def test_what_is_not_run_is_in_a_page(prefix: str) -> None:
    everywhere = " ".join((ROOT / page).read_text() for page in pages()) + (ROOT / "dev").read_text()
    assert prefix in everywhere, "an exception for nothing"


def test_what_is_installed_by_a_page_can_be_installed() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = [command for page in pages() for command in commands(page) if command.text.startswith("pip install")]
    assert found
    for command in found:
        for name, wanted in re.findall(r"([\w-]+)(?:\[([\w,]+)\])?", command.text.removeprefix("pip install")):
            assert name == "airflow-provider-checkpoint", command.place
            assert set(filter(None, wanted.split(","))) <= extras.keys(), command.place


def test_commands_in_the_running_text_name_verbs_and_options_that_exist() -> None:
    options = {verb.name: {flag for each in verb.all_arguments for flag in each.flags} for verb in VERBS}
    known = {flag for flags in options.values() for flag in flags} | {"--help", "--version"}
    seen = 0
    for page in pages():
        for code in inline_code(page):
            words = code.split()
            if words[0] != "checkpoints" or len(words) < 2 or not words[1].isalpha():
                continue
            seen += 1
            verb = words[1]
            assert verb == "VERB" or verb in options, f"{page}: {code}"
            given = {word.partition("=")[0] for word in words if word.startswith("--")}
            assert given <= (known if verb == "VERB" else options[verb] | {"--help"}), f"{page}: {code}"
    assert seen
