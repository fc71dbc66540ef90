"""Preprocessing with Modin. Registers nothing in this version."""
