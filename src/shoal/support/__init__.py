"""Checks, files, rounding, and the C kernels. Imports nothing of ours."""
