"""What speaks in the learner's notebook, and what names mistakes there and in grading."""
