"""What an operator and a reader see of the collector: pages, JSON, metrics, tokens."""
