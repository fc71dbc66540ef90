"""Preprocessing with Dask DataFrame. Registers nothing in this version."""
