"""Whatever was handed in -> the course's notebook with the learner's answers in it."""
