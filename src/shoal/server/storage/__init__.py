"""Databases, keys and crowds on disk, for every service."""
