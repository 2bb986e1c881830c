# syntax=docker/dockerfile:1
# An image for drivers and executors on Kubernetes, and for reading anywhere. It needs no root and
# writes nowhere but to /tmp and Spark's work folder. docs/deployment.md has the commands.
#
#   make wheel && docker build --tag seglake .
#   docker run --read-only --user 2000 seglake /opt/seglake/bin/seglake topics s3://bucket/lake
ARG PYTHON=3.13
ARG SPARK=apache/spark:4.2.0

FROM ${SPARK} AS spark

FROM python:${PYTHON}-slim-trixie AS seglake
# For any processor of this kind. On a cluster of one type, build there with the name of that type.
ARG CPU=generic
ENV NUMBA_CPU_NAME=${CPU}
WORKDIR /build
COPY requirements.lock ./
COPY deploy/install.sh deploy/
COPY dist/*.whl dist/
RUN PYTHON=python3 deploy/install.sh dist/*.whl /opt/seglake pandas && rm -r /build/*

FROM seglake
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-21-jre-headless procps tini \
    && rm -rf /var/lib/apt/lists/*
COPY --from=spark /opt/spark /opt/spark
COPY --from=spark /opt/entrypoint.sh /opt/
ENV SPARK_HOME=/opt/spark \
    PATH=/opt/seglake/bin:/opt/spark/bin:${PATH} \
    PYSPARK_PYTHON=/opt/seglake/bin/python \
    PYSPARK_DRIVER_PYTHON=/opt/seglake/bin/python
RUN echo /opt/spark/python > /opt/seglake/spark.pth \
    && ls -d /opt/spark/python/lib/py4j-*.zip >> /opt/seglake/spark.pth \
    && mv /opt/seglake/spark.pth "$(/opt/seglake/bin/python -c 'import site; print(site.getsitepackages()[0])')" \
    && mkdir -p /opt/spark/work-dir && chmod 0777 /opt/spark/work-dir
WORKDIR /opt/spark/work-dir
USER 2000
ENTRYPOINT ["/opt/entrypoint.sh"]
