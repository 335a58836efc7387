"""From a request to a crowd on the disk, each report exactly once."""
