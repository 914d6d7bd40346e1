"""Whoever has no right on a DAG or a connection can neither start, nor approve, nor read."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("airflow")]

CONF = {"logical_date": None, "conf": {"dry_run": True}}
ASK = {
    "start": ("POST", "/api/v2/dags/checkpoint_recovery/dagRuns", CONF),
    "runs": ("GET", "/api/v2/dags/checkpoint_recovery/dagRuns", None),
    "questions": ("GET", "/api/v2/dags/~/dagRuns/~/hitlDetails", None),
    "connection": ("GET", "/api/v2/connections/spark_default", None),
    "remove": ("DELETE", "/api/v2/connections/nobody-has-this", None),
}
#: Airflow's roles: a viewer reads, a user also starts and answers, an op also sees connections.
TABLE = {
    None: {"start": 401, "runs": 401, "questions": 401, "connection": 401, "remove": 401},
    "vera": {"start": 403, "runs": 200, "questions": 200, "connection": 403, "remove": 403},
    "uwe": {"runs": 200, "questions": 200, "connection": 403, "remove": 403},
    "olga": {"runs": 200, "questions": 200, "connection": 200, "remove": 404},
}


@pytest.mark.parametrize(
    ("user", "what", "code"), [(user, what, code) for user, row in TABLE.items() for what, code in row.items()]
)
def test_rights(airflow, user, what, code):
    assert airflow.ask(*ASK[what], user=user).status_code == code
