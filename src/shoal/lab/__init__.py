"""Evidence that Shoal does what it says: simulations, studies, demonstrations, the papers.

It may import anything, and only `cli` imports it.

Simulated people
    `populations`          simulated answers, and simulated texts with known counts
    `tally_distributions`  their tallies, drawn from the exact distribution
    `simulation`           the whole path, with the truth beside each estimate
    `study`                repeated simulations: bias, sigma and coverage beside theory

Demonstrations on one machine
    `services`             processes of the services
    `demo`                 a collector and thousands of devices
    `parties_demo`         a relay, an analyzer and thousands of devices
    `web_demo/`            a page with a survey, whose visitor is one of a crowd
    `capacity`             costs of one report, and the needs of many devices

The papers
    `counterexamples`      a search for crowds that break their conjecture
    `papers/`              every number they print, computed again
"""
