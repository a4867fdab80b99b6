# The agent's image, built from the root of the repository:
#   docker build -f deploy/images/agent.Dockerfile -t gpusteward-agent:0.1.0 .
FROM python:3.11-slim AS build
WORKDIR /source
RUN python -m venv /opt/gpusteward
COPY requirements/agent.txt requirements/agent.txt
RUN /opt/gpusteward/bin/pip install --no-cache-dir --require-hashes -r requirements/agent.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/gpusteward/bin/pip install --no-cache-dir --no-deps . \
    && /opt/gpusteward/bin/pip uninstall -q -y pip setuptools \
    && python -m compileall -q /opt/gpusteward/lib \
    && chmod -R a-w /opt/gpusteward

FROM python:3.11-slim
# The base image comes without bytecode, and a read-only root cannot keep any: without this every start compiles anew.
RUN python -m compileall -q -x "/(test|tests|idlelib|lib2to3|ensurepip)/" /usr/local/lib/python3.11
COPY --from=build /opt/gpusteward /opt/gpusteward
ENV PATH=/opt/gpusteward/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=utility
# Nothing needs root but the kubelet's socket: deploy/manifests/agent.yaml asks for it, without any capability.
USER 65534:65534
EXPOSE 9400
ENTRYPOINT ["gpusteward"]
CMD ["agent"]
