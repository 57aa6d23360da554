# An image that records training programs:
#
#   docker build -t florhook --build-arg PACKAGES="torch scikit-learn" .
#   docker run -v "$PWD":/app -v store:/flor florhook train.py --lr 0.1
#   docker run -v "$PWD":/app -v store:/flor -e FLOR_MODE=replay florhook train.py --lr 0.1
ARG PYTHON=3.12
FROM python:${PYTHON}-slim

# The kernel drops signals that process 1 has no handler for, SIGTERM among them: tini is process 1, passes them on
# and ends with the program's exit code.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/*

# What the training programs need.
ARG PACKAGES=""
RUN if [ -n "$PACKAGES" ]; then pip install --no-cache-dir $PACKAGES; fi

COPY . /src/florhook
RUN pip install --no-cache-dir /src/florhook \
    && install -m 755 /src/florhook/scripts/docker-entrypoint.sh /usr/local/bin/docker-entrypoint \
    && rm -rf /src/florhook

ENV FLOR_HOME=/flor
VOLUME /flor
WORKDIR /app
ENTRYPOINT ["tini", "--", "docker-entrypoint"]
