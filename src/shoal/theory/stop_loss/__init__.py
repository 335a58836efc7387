"""The certified engine: the expected excess of a sum of outcomes, from both sides."""
