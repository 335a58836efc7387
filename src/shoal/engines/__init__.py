"""The same verbs elsewhere: whole tables, and files larger than memory."""
