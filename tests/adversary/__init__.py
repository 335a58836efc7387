"""An adversary: random and pointed cases, judged by an oracle that shares no code with Shoal.

`oracle` holds the mathematics, from the definitions, in exact integers. `worlds` makes up surveys,
q and epsilon, and aims at the coincidences of the formulas. `crowds`, `times`, `counts`, `edits`
and `channels` ask Shoal's public functions and set what they say beside the truth; `judging` runs
the cases.
"""
