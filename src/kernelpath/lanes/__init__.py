"""Offer warpcheck's front ends to learners' files, as in `from kernelpath.lanes import cuda`."""
