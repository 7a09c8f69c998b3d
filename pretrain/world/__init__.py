"""The synthetic world: text and tasks whose truth is known."""
