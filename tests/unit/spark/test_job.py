"""The command line of a job: what makes no sense is said in a line, before anything is touched."""

from __future__ import annotations

import pytest

from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.spark.job import main, store_options
from airflow_provider_checkpoint.spark.operators import StoreAddress
from airflow_provider_checkpoint.spark.pipeline import CheckpointedPipeline, RunOptions
from airflow_provider_checkpoint.spark.sources import FileSource


def start(folder, *more: str) -> None:
    def build(_):
        source = FileSource("numbers", str(folder / "landing"), schema="x int")
        return CheckpointedPipeline("numbers", source=source, route=None)

    main(build, argv=["--store", str(folder / "store"), "--pipeline", "numbers", *more])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--store-option", "endpoint_url"], "'endpoint_url' is not NAME=VALUE"),
        (["--store-option", "=x"], "'=x' is not NAME=VALUE"),
        (["--pipeline", "../numbers"], "not the name of a folder"),
        (["--pipeline", ""], "not the name of a folder"),
        (["--max-epochs", "many"], "invalid int value"),
        (["--verify", "a-bit"], "invalid"),
    ],
)
def test_an_argument_that_cannot_be_understood_is_explained(tmp_path, capsys, arguments, words):
    with pytest.raises(SystemExit) as ended:
        start(tmp_path, *arguments)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--max-epochs", "-1"], "number of epochs is negative"),
        (["--poll-seconds", "0"], "longer than nothing"),
        (["--poll-seconds", "nan"], "longer than nothing"),
        (["--tolerable-failures", "-1"], "tolerable failures is negative"),
    ],
)
def test_a_number_that_makes_no_sense_ends_the_job_in_one_line_before_it_takes_over(tmp_path, arguments, words):
    with pytest.raises(SystemExit) as ended:
        start(tmp_path, *arguments)
    message = str(ended.value.code)
    assert message.startswith("ConfigurationError: ")
    assert words in message
    assert not list(tmp_path.iterdir())


def test_options_of_a_run_are_checked_without_a_command_line_as_well():
    with pytest.raises(ConfigurationError, match="negative"):
        RunOptions(StoreAddress("memory://x"), max_epochs=-1)


def test_the_value_of_an_option_may_hold_an_equals_sign():
    assert store_options(["a=b=c", "d="]) == {"a": "b=c", "d": ""}


FROM_AN_EXECUTOR = """An error occurred while calling o51.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 7.0 failed 4 times: \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
{}

	at org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:1)
Caused by: java.io.IOException: broken pipe
	... 1 more
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (FROM_AN_EXECUTOR.format("ValueError: key column 'k' holds nulls"), "ValueError: key column 'k' holds nulls"),
        (
            FROM_AN_EXECUTOR.format("airflow_provider_checkpoint.exceptions.CorruptArtifactError: no\nHINT: go back"),
            "CorruptArtifactError: no\nHINT: go back",
        ),
        ("the JVM is gone\nand more", "RuntimeError: the JVM is gone"),
        ("", "RuntimeError: "),
    ],
)
def test_whatever_else_goes_wrong_the_last_line_names_it(text, line):
    def build(_):
        raise RuntimeError(text)

    with pytest.raises(SystemExit) as ended:
        main(build, argv=["--store", "x", "--pipeline", "y"])
    assert ended.value.code == line
