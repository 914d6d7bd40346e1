"""Airflow provider that owns the life of a streaming pipeline's checkpoints.

Importing this package imports neither Airflow nor Spark.
"""

__version__ = "0.1.0"
