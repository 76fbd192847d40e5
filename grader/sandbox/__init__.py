"""The learner's side of the judging: a jailed process that never holds a test. Imports nothing else of this package."""
