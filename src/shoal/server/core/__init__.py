"""What every service has: settings, listeners, HTTP, problem documents, tokens, clock, backup."""
