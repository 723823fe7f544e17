"""For contributors: the invariants that hold the course together, and drafts of new exercises.

invariants  what `kp dev check` checks, a function each
controls    wrong answers that every exercise must reject
draft       the files of a new exercise, from a problem (`kp dev new`)
"""
