"""Decisions: pure functions from facts to plans, and one small executor that applies a plan."""
