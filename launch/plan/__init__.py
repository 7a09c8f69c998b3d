"""The plan: from lists of procedures, seeds and tasks to runs with identities."""
