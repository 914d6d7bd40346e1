"""What is on the store and what it means: one checkpoint format per package, one vocabulary for all."""

from airflow_provider_checkpoint.layouts._open import open_store, pipelines, require_its_own
from airflow_provider_checkpoint.layouts._protocol import Check, Examination, Layout, Named, Role

__all__ = ["Check", "Examination", "Layout", "Named", "Role", "open_store", "pipelines", "require_its_own"]
