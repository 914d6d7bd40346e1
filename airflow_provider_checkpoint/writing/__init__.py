"""Snapshots and the commit protocol."""
