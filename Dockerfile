# captioner serve, with the default model, as a user without rights. Build: docker build -t captioner .
# Run: docker run --rm -p 127.0.0.1:8000:8000 captioner
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE NOTICE constraints.txt ./
COPY captioner captioner
COPY weights/default weights/default
RUN pip wheel --no-cache-dir --wheel-dir /wheels --constraint constraints.txt '.[serve]'

FROM python:3.12-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels 'captioner[serve]' && rm -rf /wheels \
    && useradd --system --no-create-home --shell /usr/sbin/nologin captioner
USER captioner
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/ready', timeout=2)"]
# Inside the container the service has to listen on all addresses; -p decides who reaches it.
ENTRYPOINT ["captioner", "serve", "--host", "0.0.0.0"]
