"""The course as a website: static pages for reading, built from the learner's notebooks by `make site`."""
