"""The analyst of a leader and a helper: collects their batches."""
