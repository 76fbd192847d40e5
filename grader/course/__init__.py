"""What a course is: its source text, and the notebooks built from it. Knows nothing of hand-ins."""
