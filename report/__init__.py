"""Answers for readers: words, tables, figures, pages and the commands that print them."""
