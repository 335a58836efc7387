"""From randomized reports to published counts. Nothing here ever sees an answer."""
