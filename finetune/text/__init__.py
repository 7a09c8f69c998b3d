"""Classification and regression of texts: GLUE, challenge sets, and users' data."""
