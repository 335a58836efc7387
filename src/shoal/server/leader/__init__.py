"""The leader of DAP: the aggregator that takes reports."""
