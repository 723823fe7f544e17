"""A class: what each learner handed in, its grading, and the gradebook."""
