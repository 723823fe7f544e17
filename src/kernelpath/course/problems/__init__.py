"""One module per operator, each with its `PROBLEM`: what every exercise, notebook and benchmark of it shares."""
