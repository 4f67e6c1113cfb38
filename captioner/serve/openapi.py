"""The OpenAPI 3.1 description of the service, and a page that shows it.

The options are described by the fields of SearchOptions, and by the limits of the service.
"""

from __future__ import annotations

import json
from functools import cache
from html import escape
from typing import Any, get_args

from captioner import __version__
from captioner.evidence.word_evidence import ALTERNATIVES
from captioner.options import BackendLabel, HardAttention
from captioner.overlay.embedding import html_document
from captioner.serve.caption_request import LARGEST, MOST_WORDS, SEARCH
from captioner.serve.overlay_call import FORMATS
from captioner.serve.service_settings import ServiceSettings
from captioner.writers.wording import STYLES

_TEXT, _NUMBER = {"type": "string"}, {"type": "number"}
_PICTURE = {"type": "string", "description": "A picture as base64 or as a data URL."}
_PROBLEMS = (400, 401, 404, 413, 415, 422, 429, 503, 504)
_STYLE_SHEET = """body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%}th{text-align:left}
td,th{border-bottom:1px solid #8888;padding:.35rem .8rem .35rem 0;vertical-align:top}
pre{overflow-x:auto;padding:1rem;background:#8882;border-radius:8px}"""


@cache
def options() -> dict[str, dict[str, Any]]:
    """The schema of every option of a request."""
    return {
        "model": {**_TEXT, "description": "Name of a served model; the first one if none is given."},
        "style": {
            **_TEXT,
            "enum": list(STYLES),
            "description": "How `text` is written: a sentence with capital and full stop, or the model's plain words.",
        },
        "words": {"type": "boolean", "description": "Add each word with its probability."},
        "maps": {"type": "boolean", "description": "Add each word's attention map, rows by columns, as `alpha`."},
        "word_alternatives": {
            "type": "boolean",
            "description": f"Add each word with the {ALTERNATIVES} likeliest words at its position, as `alternatives`: "
            "what else the model could have said there. Pages and their data have them unless it is false.",
        },
        "erase": {
            "type": "array",
            "items": {**_TEXT, "pattern": "^[0-9]{1,4}:[0-9]{1,4}$"},
            "description": "Cells of the model's grid to paint over before captioning, as row:column from 0:0.",
        },
        **{name: _search_option(name) for name in SEARCH},
    }


def _search_option(name: str) -> dict[str, Any]:
    field = SEARCH[name]
    schema: dict[str, Any] = {"description": field.metadata["description"]}
    if isinstance(field.default, tuple):
        return {**schema, "type": "array", "items": _TEXT, "maxItems": MOST_WORDS}
    if name == "hard_attention":
        return {**schema, **_TEXT, "enum": list(get_args(HardAttention))}
    if isinstance(field.default, bool):
        return {**schema, "type": "boolean"}
    schema["type"] = "integer" if isinstance(field.default, int) else "number"
    least, most = field.metadata["least"], LARGEST.get(name, field.metadata["most"])
    if least is None:
        schema["exclusiveMinimum"] = 0  # temperature and top_p
    else:
        schema["minimum"] = least
    return schema if most is None else {**schema, "maximum": most}


def document(settings: ServiceSettings) -> dict[str, Any]:
    """The whole description."""
    body = {
        "content": {
            "application/json": {"schema": _reference("CaptionRequest")},
            "multipart/form-data": {"schema": _reference("CaptionForm")},
            "image/*": {"schema": {"type": "string", "format": "binary"}},
        },
        "required": True,
    }
    query = [{"name": name, "in": "query", "schema": schema} for name, schema in options().items()]
    overlay_query = [
        {"name": "format", "in": "query", "schema": {"type": "string", "enum": list(FORMATS)}},
        {
            "name": "rank",
            "in": "query",
            "description": "Which caption of the n-best list to draw: 1 is the best.",
            "schema": {"type": "integer", "minimum": 1, "maximum": LARGEST["n_best"], "default": 1},
        },
    ]
    drawn = {
        "description": "A PNG sheet, an HTML page, or the data of the page as JSON.",
        "content": {kind.partition(";")[0]: {} for kind in FORMATS.values()},
    }
    paths = {
        "/v1/caption": {
            "post": _call("Caption pictures", _json("CaptionResponse"), parameters=query, requestBody=body)
        },
        "/v1/overlay": {
            "post": _call("Draw where the model looked", drawn, parameters=[*overlay_query, *query], requestBody=body)
        },
        "/v1/models": {"get": _call("List the models", _json("Object"))},
        "/v1/chat/completions": {
            "post": _call("Caption a picture as OpenAI's API does", _json("Object"), **_json_body("ChatRequest"))
        },
        "/api/generate": {
            "post": _call("Caption a picture as Ollama does", _json("Object"), **_json_body("OllamaRequest"))
        },
        "/api/chat": {
            "post": _call("Caption a picture in Ollama's chat", _json("Object"), **_json_body("ChatRequest"))
        },
        "/api/tags": {"get": _call("List the models as Ollama does", _json("Object"))},
        "/api/v1/vision/caption": {
            "post": _call("Caption a picture for PhotoPrism", _json("Object"), **_json_body("PhotoPrismRequest"))
        },
        "/live": {"get": _call("Whether the process runs", _plain())},
        "/ready": {"get": _call("Whether requests are accepted", _plain(), **{"503": _plain()})},
        "/metrics": {"get": _call("Prometheus metrics", _plain())},
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "captioner",
            "version": __version__,
            "description": "Captions for pictures, and where the model looked for each word.",
        },
        **({"security": [{"token": []}]} if settings.token_file else {}),
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": _schemas(settings),
        },
    }


def page(settings: ServiceSettings) -> str:
    """The calls and options for people."""
    content = document(settings)
    calls = "".join(
        f"<tr><td><code>{method.upper()} {path}</code></td><td>{escape(call['summary'])}</td></tr>"
        for path, methods in content["paths"].items()
        for method, call in methods.items()
    )
    rows = "".join(
        f"<tr><td><code>{name}</code></td><td>{escape(_kind(schema))}</td><td>{escape(schema['description'])}</td></tr>"
        for name, schema in options().items()
    )
    body = f"""<h1>captioner {escape(__version__)}</h1>
<p>The machine-readable description is <a href="openapi.json">openapi.json</a>. The page for people is
<a href="./">here</a>.</p>
<h2>Calls</h2><table>{calls}</table>
<h2>Examples</h2>
<pre>curl -F file=@photo.jpg http://127.0.0.1:8000/v1/caption
curl --data-binary @photo.jpg -H 'Content-Type: image/jpeg' 'http://127.0.0.1:8000/v1/caption?words=true'
curl --data-binary @photo.jpg -H 'Content-Type: image/jpeg' 'http://127.0.0.1:8000/v1/overlay' -o sheet.png</pre>
<h2>Options</h2><p>Give them as form fields, as query parameters, or as members of the JSON body. Options that are not
given take the model's own values.</p>
<table><thead><tr><th>option</th><th>value</th><th>meaning</th></tr></thead><tbody>{rows}</tbody></table>
<h2>Schemas</h2><pre>{escape(json.dumps(content["components"]["schemas"], indent=1))}</pre>"""
    return html_document("captioner: HTTP calls", body, style_sheet=_STYLE_SHEET)


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(schema["enum"])
    names = {"integer": "whole number", "number": "number", "boolean": "true or false", "array": "words"}
    return names.get(schema["type"], "text")


def _call(summary: str, answer: dict[str, Any], /, **more: Any) -> dict[str, Any]:
    """A call with its answers. Members of `more` that are a status are further answers."""
    problem = {"application/problem+json": {"schema": _reference("Problem")}}
    answers = {"200": answer}
    answers |= {str(status): {"description": "What is wrong.", "content": problem} for status in _PROBLEMS}
    answers |= {name: value for name, value in more.items() if name.isdecimal()}
    return {
        "summary": summary,
        "responses": answers,
        **{name: value for name, value in more.items() if not name.isdecimal()},
    }


def _reference(schema: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{schema}"}


def _json(schema: str) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": _reference(schema)}}
    if schema == "Object":  # OpenAI's and Ollama's streams
        content |= {"application/x-ndjson": {}, "text/event-stream": {}}
    return {"description": "The answer.", "content": content}


def _json_body(schema: str) -> dict[str, Any]:
    return {"requestBody": {"content": {"application/json": {"schema": _reference(schema)}}, "required": True}}


def _plain() -> dict[str, Any]:
    return {"description": "Plain text.", "content": {"text/plain": {}}}


def _schemas(settings: ServiceSettings) -> dict[str, Any]:
    pictures = {"type": "array", "items": _PICTURE, "minItems": 1, "maxItems": settings.max_pictures}
    word = _reference("Word")
    sentence = {
        "image": {**_TEXT, "description": "Name of the picture."},
        "text": {**_TEXT, "description": "The caption in the style that was asked for."},
        "caption": {**_TEXT, "description": "The model's words."},
        "sentence": {**_TEXT, "description": "The caption with a capital letter and a full stop."},
        "confidence": {
            **_NUMBER,
            "description": "The caption's confidence: the expected share of its content words that are right, 0 to 1; "
            "absent if the model has no calibration.",
        },
        "score": {**_NUMBER, "description": "What the search ranks by."},
        "log_probability": _NUMBER,
        "words": {"type": "array", "items": word},
        "end": {"anyOf": [word, {"type": "null"}], "description": "The end of the sentence."},
    }
    stream = {"type": "boolean"}
    return {
        "CaptionRequest": {
            "type": "object",
            "properties": {"images": pictures, "image": _PICTURE, **options()},
            "additionalProperties": False,
        },
        "CaptionForm": {
            "type": "object",
            "properties": {"file": {"type": "array", "items": {"type": "string", "format": "binary"}}, **options()},
        },
        "CaptionResponse": {
            "type": "object",
            "required": ["model", "backend", "results", "timings"],
            "properties": {
                "model": _TEXT,
                "backend": {"enum": list(get_args(BackendLabel)), "description": "What computed the captions."},
                "results": {"type": "array", "items": _reference("Result")},
                "timings": {
                    "type": "object",
                    "properties": {"decode_ms": _NUMBER, "caption_ms": _NUMBER},
                    "description": "Milliseconds for decoding, and for waiting, encoding and search.",
                },
            },
        },
        "Result": {
            "type": "object",
            "required": ["image"],
            "properties": {
                "error": {**_TEXT, "description": "Why this picture has no caption."},
                "width": {"type": "integer"},
                "height": {"type": "integer"},
                **sentence,
                "alternatives": {"type": "array", "items": {"type": "object", "properties": sentence}},
            },
        },
        "Word": {
            "type": "object",
            "required": ["text", "probability", "log_probability", "gate", "entropy"],
            "properties": {
                "text": _TEXT,
                "probability": _NUMBER,
                "log_probability": _NUMBER,
                "gate": {**_NUMBER, "description": "Share of the attended picture that the decoder used, 0 to 1."},
                "entropy": {**_NUMBER, "description": "Entropy of the attention map in nats."},
                "cell": {
                    "type": "array",
                    "items": {"type": "integer"},
                    "description": "Row and column of the cell that a hard-attention model selected.",
                },
                "alternatives": {
                    "type": "array",
                    "description": "The likeliest words at this position, given the words before, with their "
                    "probabilities.",
                    "items": {"type": "array", "prefixItems": [_TEXT, _NUMBER], "minItems": 2, "maxItems": 2},
                },
                "alpha": {"type": "array", "items": {"type": "array", "items": _NUMBER}},
            },
        },
        "ChatRequest": {
            "type": "object",
            "required": ["messages"],
            "properties": {
                "model": _TEXT,
                "messages": {"type": "array", "items": {"type": "object"}},
                "stream": stream,
            },
        },
        "OllamaRequest": {
            "type": "object",
            "required": ["images"],
            "properties": {"model": _TEXT, "prompt": _TEXT, "images": pictures, "stream": stream},
        },
        "PhotoPrismRequest": {
            "type": "object",
            "required": ["images"],
            "properties": {"id": _TEXT, "model": _TEXT, "images": pictures},
        },
        "Object": {"type": "object"},
        "Problem": {
            "type": "object",
            "required": ["type", "title", "status", "detail"],
            "properties": {"type": _TEXT, "title": _TEXT, "status": {"type": "integer"}, "detail": _TEXT},
        },
    }
