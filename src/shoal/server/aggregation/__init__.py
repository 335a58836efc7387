"""What a leader and a helper of DAP share: tables, keys of windows, batches, requests."""
