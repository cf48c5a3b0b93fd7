# CPU:  docker build -t torchrl-agent .
#       docker run --rm -v "$PWD/runs:/app/runs" torchrl-agent train arena
# CUDA: docker build -t torchrl-agent --build-arg DEVICE=cuda .
#       docker run --rm --gpus all -v "$PWD/runs:/app/runs" torchrl-agent train arena
FROM python:3.11-slim

# cpu takes PyTorch's small wheels; cuda takes PyPI's, which bring the libraries of CUDA along
ARG DEVICE=cpu
# pip keeps no second copy of the wheels in the image
ARG PIP_NO_CACHE_DIR=1

# make installs, g++ compiles for CPUs
RUN apt-get update && apt-get install --yes --no-install-recommends g++ make && rm -rf /var/lib/apt/lists/*

WORKDIR /app
COPY . .
RUN if [ "$DEVICE" = cpu ]; then export PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu; fi && make install

ENV PATH="/app/.venv/bin:$PATH"
ENTRYPOINT ["torchrl-agent"]
CMD ["doctor"]
