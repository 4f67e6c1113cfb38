"""`captioner serve`: an HTTP service and a page."""

from __future__ import annotations

from typing import Any

import click

from captioner.cli.options import EXISTING_FOLDER, FILE, backend_options, batch_option, limit_options, model_option
from captioner.serve.service_settings import MEGABYTE, ServiceSettings


@click.command(name="serve")
@model_option(multiple=True)
@click.option(
    "--host", default=ServiceSettings.host, show_default=True, metavar="ADDRESS", help="Address to listen on."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=ServiceSettings.port,
    show_default=True,
    metavar="N",
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=ServiceSettings.workers,
    show_default=True,
    metavar="N",
    help="Number of processes.",
)
@backend_options(ServiceSettings.backend)
@batch_option
@click.option(
    "--max-wait",
    type=click.FloatRange(0),
    default=ServiceSettings.max_wait,
    show_default=True,
    metavar="MS",
    help="Longest time that a batch waits for pictures that are being decoded, in milliseconds.",
)
@click.option(
    "--queue",
    type=click.IntRange(1),
    default=ServiceSettings.queue,
    show_default=True,
    metavar="N",
    help="Number of pictures that may wait, per model and process; more are refused with status 429.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1),
    default=ServiceSettings.timeout,
    show_default=True,
    metavar="SECONDS",
    help="Longest time of a request; then it gets status 504.",
)
@click.option(
    "--max-body",
    type=click.IntRange(1),
    default=ServiceSettings.max_body // MEGABYTE,
    show_default=True,
    metavar="MB",
    help="Largest body of a request, in megabytes.",
)
@click.option(
    "--body-memory",
    type=click.IntRange(1),
    default=ServiceSettings.body_memory // MEGABYTE,
    show_default=True,
    metavar="MB",
    help="Memory for the bodies of all requests in work, per process, in megabytes; more are refused with status 429.",
)
@click.option(
    "--max-pictures",
    type=click.IntRange(1),
    default=ServiceSettings.max_pictures,
    show_default=True,
    metavar="N",
    help="Largest number of pictures in a request.",
)
@limit_options
@click.option("--token-file", type=FILE, metavar="FILE", help="File with a token that every request must carry.")
@click.option(
    "--cors", multiple=True, metavar="ORIGIN", help="Allow pages of this origin to use the service; may be repeated."
)
@click.option(
    "--web",
    type=EXISTING_FOLDER,
    metavar="DIR",
    help="Also serve this folder of `captioner web`, at /web/: a page that captions in the visitor's browser.",
)
@click.option("--log/--no-log", default=True, show_default=True, help="Write one JSON line per request.")
def command(models: tuple[str, ...], max_body: int, body_memory: int, **settings: Any) -> int:
    """Serve captions over HTTP, and a page to drop photos on.

    The address of the page is printed; GET /docs lists the calls. SIGTERM and Ctrl-C stop the service after it has
    answered what it accepted.
    """
    from captioner.serve.server import serve

    settings |= {"max_body": max_body * MEGABYTE, "body_memory": body_memory * MEGABYTE}
    return serve(ServiceSettings(models=models, **settings))
