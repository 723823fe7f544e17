"""Run kernels without a GPU, in a process of their own, and query GPUs.

All frontends launch through `warpcheck.backend`. In a notebook the PTX machine runs in the same process. A graded
submission launches through `client` on the machine of `server`, which runs in a process of its own and holds the memory
of kernels, their counters, and the transcript of launches. The simulated devices of course/labs run there as well
(`lab_server`); a submission calls them through proxies (`lab_client`). `messages` and `lab_messages` define the
protocol.
"""
