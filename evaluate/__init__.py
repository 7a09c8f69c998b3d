"""Predictions on disk, metrics as columns and a finish, and the bias measures of Winogender."""
