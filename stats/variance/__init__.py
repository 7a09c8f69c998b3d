"""Variances of tables of seeds and examples, of designs that sum such tables, and plans from them."""
