"""Learn GPU kernel engineering in 24 weeks: graded with a GPU or without one."""
