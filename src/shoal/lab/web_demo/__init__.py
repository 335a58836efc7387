"""One crowd in a browser: a visitor answers on a page, and simulated people fill the crowd.

The page uses the client for web pages, the collector is a `shoal serve` process, and every
simulated person has an outbox. `people` simulates the rest of the crowd, `pages` serves pages.
"""

from __future__ import annotations

from shoal.lab.web_demo.pages import web_demonstration

__all__ = ["web_demonstration"]
