"""Before the first answer: how much noise a promise needs, and what a plan then promises."""
