"""Where kernels run without a GPU, and what is known about a GPU.

`api` is the one seam that lanes launch through. In a notebook the PTX machine is in the same process; what is graded
launches through `client` on the machine of `server`, a process of its own, which holds what kernels read and write,
what they cost, and a transcript. The simulated devices of course/labs are there as well (`lab_server`, `lab_client`): a
submission can use them, and nothing else. `messages` defines what they send to each other and to the grader.
"""
