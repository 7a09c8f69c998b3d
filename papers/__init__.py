"""Papers on robustness: their statistics, tables, figures and pages."""
