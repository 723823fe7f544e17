"""Help contributors: check the invariants that hold the course together, and draft new exercises.

invariants  what `kp dev check` checks, a function each
controls    wrong answers that every exercise must reject
draft       the files of a new exercise, from a problem (`kp dev new`)
"""
