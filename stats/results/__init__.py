"""What a comparison found, as data: no words, tables or figures."""
