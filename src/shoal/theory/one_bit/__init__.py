"""One bit, exactly: the law of a count, and the worst crowd."""
