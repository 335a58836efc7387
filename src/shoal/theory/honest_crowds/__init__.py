"""Crowds in which only some of the reports are honest."""
