"""Prediction files, metrics (columns and a finish), and the bias measures of Winogender."""
