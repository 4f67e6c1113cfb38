"""The HTTP service: captions for other programs, and a page for people.

service_settings   what `captioner serve` was asked for
batcher            pictures of many requests are searched together
service            the loaded models, and the rules for accepting work
caption_request    pictures and options of a request
caption_response   captions as JSON
problems           errors as JSON (RFC 9457)
service_metrics    Prometheus metrics
overlay_call       captions as sheets, pages, and data for the page
drop_in            the calls of OpenAI, Ollama and PhotoPrism clients
openapi            the description of all calls
web_page           the page for people, with the viewer of the overlay pages
guard              token, limits, draining, metrics and log of every request
app                the routes
server             uvicorn, worker processes, and the orderly stop
"""
