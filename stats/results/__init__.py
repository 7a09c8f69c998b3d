"""Results of comparisons as data: no words, tables or figures."""
