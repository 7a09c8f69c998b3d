"""Classification and regression of texts: GLUE, challenge sets, and data of the user's own."""
