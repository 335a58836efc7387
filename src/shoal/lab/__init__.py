"""Evidence that Shoal does what it says: simulations, studies, demonstrations, the papers.

It may import anything, and only `cli` imports it.

Simulated people
    `populations`      simulated answers, texts with known counts, and their tallies, drawn from
                       the exact distribution
    `simulation`       the whole path, once or in several windows, with the truth beside it
    `study`            repeated simulations: bias, sigma and coverage beside theory

Demonstrations on one machine
    `demo`             a collector and thousands of devices; processes of the services
    `parties_demo`     a leader, a helper and thousands of devices
    `web_demo/`        a page with a survey, whose visitor is one of a crowd
    `capacity`         costs of one report, and the needs of many devices

The papers
    `counterexamples`  a search for crowds that break their conjecture
    `papers/`          every number they print, computed again
"""
