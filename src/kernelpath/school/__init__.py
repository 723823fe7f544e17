"""A class: what each learner handed in, the grading, and the gradebook."""
