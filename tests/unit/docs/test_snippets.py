"""The Python in the documentation compiles, and its DAGs are DAGs."""

from __future__ import annotations

import pytest

from tests.integration.docs.pages import Snippet, pages, snippets

ALL = [snippet for page in pages() for snippet in snippets(page)]
DAGS = [snippet for snippet in ALL if "with DAG(" in snippet.code]


def named(snippet: Snippet) -> str:
    return f"{snippet.page}:{snippet.line}"


@pytest.mark.parametrize("snippet", ALL, ids=named)
def test_python_compiles(snippet: Snippet) -> None:
    compile(snippet.code, named(snippet), "exec")


@pytest.mark.parametrize("snippet", DAGS, ids=named)
def test_a_dag_of_a_page_is_one(snippet: Snippet) -> None:
    from airflow.sdk import DAG

    made: list[DAG] = []

    class Noted(DAG):
        def __enter__(self) -> DAG:
            made.append(self)
            return super().__enter__()

    # Where a page leaves the imports out, these are meant.
    from airflow_provider_checkpoint.assets import checkpoint_asset
    from airflow_provider_checkpoint.operators.spark_submit import CheckpointSparkSubmitOperator

    names = {"checkpoint_asset": checkpoint_asset, "CheckpointSparkSubmitOperator": CheckpointSparkSubmitOperator}
    code = snippet.code.replace("from airflow.sdk import DAG\n", "")
    exec(compile(code, named(snippet), "exec"), {"DAG": Noted, **names})
    assert made
    for dag in made:
        assert dag.task_ids
        dag.validate()
