# docker build --target search -t sparta .          indexes, searches and serves; no torch
# docker build --target full -t sparta-full .       also trains
ARG BASE=python:3.12-slim

FROM ${BASE} AS source
WORKDIR /source
# pytrec-eval-terrier has no wheel for Linux on ARM64, so pip compiles it.
# hadolint ignore=DL3008
RUN if [ "$(uname -m)" = aarch64 ]; then \
        apt-get update && apt-get install -y --no-install-recommends g++ \
        && rm -rf /var/lib/apt/lists/*; \
    fi
RUN python3 -m venv /build
COPY . .
# pip takes no hashes in a constraints file: the same versions without them.
RUN bash scripts/constraints.sh >/source/constraints.txt
ENV PIP_CONSTRAINT=/source/constraints.txt \
    PIP_BUILD_CONSTRAINT=/source/constraints.txt

# Wheels of the locked versions, so that the images themselves need neither a network nor a compiler.
FROM source AS search-wheels
RUN /build/bin/pip wheel --no-cache-dir --wheel-dir /wheels '.[zh]' ./models/*-zh \
    && mkdir /own && mv /wheels/sparta_*.whl /own

FROM source AS full-wheels
RUN /build/bin/pip wheel --no-cache-dir --wheel-dir /wheels '.[dense,train,ray,zh]' \
        ./models/*-zh ./models/path-reader-bge-small-en ./models/reranker-minilm-en ./models/taser-det-en \
    && mkdir /own && mv /wheels/sparta_*.whl /own

FROM ${BASE} AS runtime
RUN useradd --uid 10001 --create-home sparta \
    && mkdir /index && chown sparta /index \
    && python3 -m venv /opt/sparta
ENV PATH=/opt/sparta/bin:$PATH \
    SPARTA_INDEX=/index
WORKDIR /home/sparta
EXPOSE 8080
HEALTHCHECK --start-period=60s --interval=15s --timeout=5s \
    CMD ["python3", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/health', timeout=4)"]
ENTRYPOINT ["sparta"]
CMD ["serve", "--host", "0.0.0.0"]

FROM runtime AS full
RUN --mount=type=bind,from=full-wheels,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --no-deps /wheels/*.whl
RUN --mount=type=bind,from=full-wheels,source=/own,target=/own \
    pip install --no-cache-dir --no-index --no-deps /own/*.whl
USER 10001

FROM runtime AS search
RUN --mount=type=bind,from=search-wheels,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --no-deps /wheels/*.whl
RUN --mount=type=bind,from=search-wheels,source=/own,target=/own \
    pip install --no-cache-dir --no-index --no-deps /own/*.whl \
    && find /opt/sparta \( -name '*.jar' -o -name java-runtime \) -exec touch --date=@0 {} +
USER 10001
# Lets Java start faster; it is for files of exactly these times, of which an image keeps whole seconds.
RUN ["python3", "-m", "sparta.lucene.jvm"]
