"""Grade a class: find what each learner handed in, grade it, and keep the gradebook."""
