# docker build -t svea .                    with the default build of torch: CUDA, and CPU as well
# docker build -t svea-cpu --build-arg TORCH_INDEX=URL .    with the small build for CPUs, from the
#     index that PyTorch's installation page names for it
FROM python:3.12.14-slim-bookworm@sha256:782412e85d0f0984994c290652577d4018aff08145c85b262bb63dc0c7522254

ARG TORCH_INDEX=
# EGL and OSMesa draw without a screen; gcc compiles kernels and the CPU's renderer when a run starts.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libegl1 libgl1 libosmesa6 libglew2.2 gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/svea
COPY requirements.txt pyproject.toml README.md LICENSE ./
# requirements.txt pins everything but torch, whose right build depends on the machine.
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch==2.13.0 \
    && pip install --no-cache-dir --require-hashes --no-deps -r requirements.txt
COPY src src
COPY zoo zoo
RUN pip install --no-cache-dir --no-deps --no-build-isolation .

# Not root: a run writes into the mounted folder only.
RUN useradd --create-home --uid 1000 svea && mkdir /work && chown svea /work
USER svea
WORKDIR /work
# With --gpus all: compute for torch, graphics for EGL.
ENV SVEA_ZOO=/opt/svea/zoo NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics
ENTRYPOINT ["svea"]
CMD ["doctor"]
