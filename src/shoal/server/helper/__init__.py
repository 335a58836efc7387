"""The helper of DAP: the second of two aggregators."""
