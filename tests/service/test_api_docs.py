"""An OpenAPI document, laid out for people."""

from __future__ import annotations

from tfod_validator.api_docs import Answer, Field, describe

SPEC = {
    "info": {"title": "A service", "version": "2", "description": "One.\nStill one.\n\nTwo."},
    "paths": {
        "/things/{key}": {
            "parameters": [{"$ref": "#/components/parameters/key"}],
            "get": {
                "tags": ["things"],
                "summary": "A thing",
                "parameters": [
                    {"name": "n", "in": "query", "schema": {"type": ["integer", "null"]}},
                    {"name": "x", "in": "header", "schema": {"type": "string"}},
                ],
                "responses": {"200": {"description": "It.", "content": {"image/jpeg": {}}}},
            },
        },
        "/uploads": {
            "post": {
                "tags": ["uploads"],
                "requestBody": {
                    "content": {
                        "multipart/form-data": {"schema": {"$ref": "#/components/schemas/Form"}},
                        "application/octet-stream": {
                            "schema": {"type": "string", "format": "binary"}
                        },
                    }
                },
                "responses": {"202": {"$ref": "#/components/responses/later"}},
            },
            "delete": {"responses": {"204": {"description": "Gone."}}},
        },
    },
    "components": {
        "parameters": {
            "key": {"name": "key", "in": "path", "required": True, "schema": {"type": "string"}}
        },
        "responses": {"later": {"description": "Later.", "content": {"application/json": {}}}},
        "schemas": {
            "Form": {
                "required": ["file"],
                "properties": {
                    "file": {"type": "array", "items": {"type": "string", "format": "binary"}},
                    "level": {"enum": ["low", "high", ""], "description": "How much."},
                    "when": {
                        "anyOf": [{"type": "null"}, {"type": "string", "format": "date-time"}]
                    },
                },
            }
        },
    },
}


def test_a_document_is_laid_out() -> None:
    docs = describe(SPEC, "http://here", "/openapi.json")
    assert (docs.title, docs.version, docs.paragraphs) == (
        "A service",
        "2",
        ("One. Still one.", "Two."),
    )
    # What takes uploads comes first.
    assert [group.name for group in docs.groups] == ["uploads", "things", "Other"]
    post, thing, gone = (group.endpoints[0] for group in docs.groups)
    assert post.tables == (
        (
            "Body as multipart/form-data",
            (
                Field("file", "array of file", "", True),
                Field("level", "low | high", "How much.", False),
                Field("when", "null or string (date-time)", "", False),
            ),
        ),
        ("Body as application/octet-stream", (Field("(body)", "file", "the file itself", True),)),
    )
    assert post.answers == (Answer("202", "Later.", ("application/json",)),)
    assert thing.tables == (
        ("In the path", (Field("key", "string", "", True),)),
        ("In the query", (Field("n", "integer or null", "", False),)),
    )
    assert [one.example for one in (post, thing, gone)] == [
        'curl -F file=@anno.zip "http://here/uploads"',
        'curl -o image.jpg "http://here/things/$key"',
        'curl -X DELETE "http://here/uploads"',
    ]
    assert thing.anchor == "get-things-key"
