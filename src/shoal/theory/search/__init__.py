"""Crowds of all kinds, looked through for the worst."""
