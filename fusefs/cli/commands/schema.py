"""JSON Schemas for editors and validators: schema."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from fusefs.cli.app import Json, app, print_json

Kind = Literal["session", "message", "entry"]


@app.command()
def schema(
    kind: Annotated[
        Kind,
        typer.Argument(
            help="session: session.json and runtime.json; message: one message; entry: an entry of sessions.json."
        ),
    ] = "session",
    as_json: Json = True,  # always JSON
) -> None:
    """Print the JSON Schema of a document, for completion and validation in editors.

    A mount has the schema of sessions in .grovefs/schema/. Unknown members are allowed everywhere and preserved.

    Example: grovefs schema message > message.schema.json
    """
    from pydantic import BaseModel

    from store import IndexEntry, Message, Session

    models: dict[Kind, type[BaseModel]] = {"session": Session, "message": Message, "entry": IndexEntry}
    print_json(models[kind].model_json_schema())
