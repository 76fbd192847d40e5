"""Our side of the judging: the checks run here, and the learner's functions are called across."""
