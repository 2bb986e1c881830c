# An image for driver and executors on Kubernetes, and for reading anywhere: no root, nothing written
# below /opt. docs/deployment.md has the commands; tests/packaging runs the same steps without Docker.
#
#   docker build -t seglake .                             # x86-64 or ARM, as the machine
#   docker run --read-only --user 2000 --tmpfs /tmp seglake seglake topics s3://bucket/lake
ARG PYTHON=3.13
FROM python:${PYTHON}-slim-trixie AS build
WORKDIR /build
COPY . .
RUN python -m venv /opt/seglake \
    && /opt/seglake/bin/python -m pip install --no-cache-dir --require-hashes -r requirements.lock \
    && /opt/seglake/bin/python -m pip install --no-cache-dir --no-deps --no-build-isolation .
# Compiled for any processor of this kind; a named one (`make` on it, or x86-64-v3) is faster.
ARG CPU=generic
ENV NUMBA_CPU_NAME=${CPU}
RUN /opt/seglake/bin/seglake warm
