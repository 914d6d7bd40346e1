"""Links from tasks to pages."""
