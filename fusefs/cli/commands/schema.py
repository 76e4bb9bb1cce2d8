"""What a document must look like, for editors and validators: schema."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from fusefs.cli.app import Json, app, print_json

Kind = Literal["session", "message", "entry"]


@app.command()
def schema(
    kind: Annotated[
        Kind,
        typer.Argument(help="session: session.json, runtime.json; message: one of it; entry: of sessions.json."),
    ] = "session",
    as_json: Json = True,  # it is JSON anyway
) -> None:
    """Print the JSON Schema of a document; editors use it to complete and to check while you type.

    The mount has the one of sessions in .grovefs/schema/. Members it does not name are allowed everywhere, and kept.

    Example: grovefs schema message > message.schema.json
    """
    from pydantic import BaseModel

    from store import IndexEntry, Message, Session

    models: dict[Kind, type[BaseModel]] = {"session": Session, "message": Message, "entry": IndexEntry}
    print_json(models[kind].model_json_schema())
