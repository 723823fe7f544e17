"""Where learners' files import the front ends from: `from kernelpath.lanes import cuda`. They are warpcheck's."""
