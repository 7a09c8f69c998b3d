"""Classification and regression of texts: GLUE, challenge sets, and data of one's own."""
