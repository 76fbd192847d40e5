"""A class: a directory that is an nbgrader course, from hand-ins coming in to grades going out."""
