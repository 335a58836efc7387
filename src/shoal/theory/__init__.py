"""The papers' formulas: pure functions of numbers and arrays; letters live here, words elsewhere."""
