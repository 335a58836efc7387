"""The collector: receives reports of devices, and releases complete crowds."""
