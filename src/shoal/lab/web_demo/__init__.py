"""One crowd in a browser: a visitor answers on a page, and simulated people fill the crowd.

Nothing is a shortcut. The page uses the client for web pages as it is, the collector is the one of
`shoal serve` in a process of its own, and every simulated person has an outbox of their own. In the
order of the story:

`client`    where the client for web pages is, in a checkout and where Shoal is installed
`people`    everybody else of the visitor's crowd, and what may be said of it so far
`pages`     what the browser is given
"""

from __future__ import annotations

from shoal.lab.web_demo.pages import web_demonstration

__all__ = ["web_demonstration"]
