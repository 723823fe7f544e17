# The course's packages, on x86-64 and aarch64. docs/platforms.md says how to start it; the checkout is mounted over /course.
FROM debian:bookworm-slim

# gcc and Python's headers are for Triton's launchers on a GPU, g++ for nvcc, procps for the editor of a dev container.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --no-install-recommends --yes \
        ca-certificates g++ gcc git libc6-dev make procps python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --shell /bin/bash learner \
    && install --directory --owner=learner /course /venv

USER learner
WORKDIR /course
ENV VIRTUAL_ENV=/venv
ENV PATH=$VIRTUAL_ENV/bin:$PATH

# PyTorch's wheels bring 4 GB of CUDA along. Up to 2.10 those for aarch64 do not, and most such laptops have no NVIDIA
# GPU. Where there is one: --build-arg TORCH_ON_AARCH64=torch. An index of wheels without CUDA for x86-64 too:
# --build-arg PIP_EXTRA_INDEX_URL=..., which pip reads.
ARG TORCH_ON_AARCH64="torch<2.11"
ARG PIP_EXTRA_INDEX_URL
COPY --chown=learner pyproject.toml setup.py README.md LICENSE ./
COPY --chown=learner src src
COPY --chown=learner warpcheck warpcheck
RUN python3 -m venv "$VIRTUAL_ENV" \
    && if [ "$(uname -m)" = aarch64 ]; then echo "$TORCH_ON_AARCH64"; fi > /tmp/constraints.txt \
    && pip install --no-cache-dir --constraint /tmp/constraints.txt --editable ./warpcheck --editable '.[all,nvcc,cutlass,pallas]'

COPY --chown=learner . .
EXPOSE 8888
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser"]
