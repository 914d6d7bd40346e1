"""What Airflow learns about this provider, without importing any of it."""

from __future__ import annotations

from typing import Any

_PACKAGE = "airflow_provider_checkpoint"
_INTEGRATION = "Checkpoint Store"


def get_provider_info() -> dict[str, Any]:
    return {
        "package-name": "airflow-provider-checkpoint",
        "name": "Checkpoint",
        "description": "Writes, proves, keeps, prunes and restores checkpoints of Spark pipelines.",
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": "https://pypi.org/project/airflow-provider-checkpoint/",
                "tags": ["software"],
            }
        ],
        "hooks": [{"integration-name": _INTEGRATION, "python-modules": [f"{_PACKAGE}.hooks.checkpoint"]}],
        "operators": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [
                    f"{_PACKAGE}.operators.{name}"
                    for name in ("approve", "pin", "prune", "recovery", "seal", "spark_submit", "validate")
                ],
            }
        ],
        "sensors": [{"integration-name": _INTEGRATION, "python-modules": [f"{_PACKAGE}.sensors.checkpoint"]}],
        "triggers": [{"integration-name": _INTEGRATION, "python-modules": [f"{_PACKAGE}.triggers.checkpoint"]}],
        "connection-types": [_connection_type()],
        "extra-links": [f"{_PACKAGE}.links.checkpoint.CheckpointPageLink"],
        "config": {"checkpoint": _configuration()},
        "cli": [f"{_PACKAGE}.cli.airflow_commands.get_checkpoint_cli_commands"],
    }


def _connection_type() -> dict[str, Any]:
    return {
        "connection-type": "checkpoint_store",
        "hook-class-name": f"{_PACKAGE}.hooks.checkpoint.CheckpointHook",
        "hook-name": "Checkpoint Store",
        "ui-field-behaviour": {
            "hidden-fields": ["port", "schema", "login", "password"],
            "relabeling": {"host": "Store URI"},
            "placeholders": {"host": "s3://bucket/prefix, gs://..., az://... or /a/folder"},
        },
        "conn-fields": {
            "layout": {
                "label": "Layout",
                "description": "The format of the checkpoints. auto recognises it from what is there.",
                "schema": {
                    "type": "string",
                    "enum": ["auto", "sidecar", "partitioned", "stream", "structured_streaming"],
                    "default": "auto",
                },
            },
            "storage_conn_id": {
                "label": "Storage connection",
                "description": "The connection that has the credentials: of type aws, google_cloud_platform or wasb."
                " Empty: the environment of whoever opens the store.",
                "schema": {"type": ["string", "null"]},
            },
            "endpoint_url": {
                "label": "Endpoint URL",
                "description": "The address of an S3-compatible server. Empty: what the storage connection says.",
                "schema": {"type": ["string", "null"]},
            },
            "region": {
                "label": "Region",
                "description": "The region of the bucket. Empty: what the storage connection says.",
                "schema": {"type": ["string", "null"]},
            },
            "vnode_count": {
                "label": "Vnodes",
                "description": "How many vnodes the jobs run with; checkpoints with another number do not fit them.",
                "schema": {"type": ["integer", "null"], "minimum": 1, "maximum": 65535},
            },
            "allow_unfenced": {
                "label": "Allow unfenced",
                "description": "Use a store that cannot keep two writers apart. Only where one can ever run.",
                "schema": {"type": "boolean", "default": False},
            },
        },
    }


def _configuration() -> dict[str, Any]:
    return {
        "description": "The pages about checkpoints in Airflow's UI.",
        "options": {
            "freshness_warn": _option(
                "From which age on the newest checkpoint that can be restored counts as late.", "1h", "30m"
            ),
            "freshness_fail": _option("From which age on it counts as stale.", "6h", "2h"),
            "retention_policy": _option(
                "The rules whose effect the pages foretell, as JSON: those that checkpoint_maintenance runs with.",
                '{"keep_last": 10, "keep_hourly": 24, "keep_daily": 14, "keep_weekly": 8, "min_age": "1h"}',
                '{"keep_last": 5, "keep_within": "7d"}',
            ),
            "page_cache_seconds": _option("How long the pages show what was read from a store.", "10", "60", "float"),
            "store_timeout_seconds": _option(
                "How long a page waits for a store before it says that the store is slow.", "1", "0.5", "float"
            ),
            "recovery_dag_id": _option(
                "The DAG that a recovery is started with.", "checkpoint_recovery", "my_team_recovery"
            ),
        },
    }


def _option(description: str, default: str, example: str, kind: str = "string") -> dict[str, Any]:
    return {
        "description": description,
        "version_added": "0.1.0",
        "type": kind,
        "example": example,
        "default": default,
    }
