"""Metrics as columns and a finish; the register names them all."""
