"""Checks, files and rounding. Imports nothing of ours."""
