"""Gold-mention coreference on a frozen encoder, Winogender, and the pronoun probe."""
