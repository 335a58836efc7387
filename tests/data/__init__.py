"""Reference files and, beside each, the script that made it."""
