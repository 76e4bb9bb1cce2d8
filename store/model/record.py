"""Record: the base class of every stored record, and the types its fields are declared with.

A record follows serde: it defines which members are required, which may be null and which are
omitted when written. Unknown members are kept (rule 5). Types are strict, because a document
that loads here must load in the agent that owns it (rule 6): `3.0` is not an integer, `null`
is not a list, 2**64 is not a u64.

Pure. For modules that declare records.
"""

import operator
from functools import partial
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticCustomError

T = TypeVar("T")

# Called for every such field at every dump, so both are implemented in C.
is_none = partial(operator.is_, None)
is_empty = operator.not_

# field name -> alternative spelling, which is read but never written
ALIASES: dict[str, str] = {"task_list": "todo_list", "active_form": "activeForm", "reference": "ref"}

U8 = Annotated[int, Field(ge=0, le=2**8 - 1)]
U32 = Annotated[int, Field(ge=0, le=2**32 - 1)]
U64 = Annotated[int, Field(ge=0, le=2**64 - 1)]  # usize too
I32 = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]


class NotNull:
    """Rejects null for a field of type `T | None`: None then always means that the member was absent."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        return schema["schema"] if schema["type"] == "nullable" else schema


# Option with skip_serializing_if: null reads as absent, None is not written.
Opt = Annotated[T | None, Field(exclude_if=is_none)]
# A member that some versions do not write. Absent reads as None and stays absent; null is an error.
Missing = Annotated[T | None, NotNull(), Field(exclude_if=is_none)]
# A member that is omitted while it is false, 0 or empty.
OmitEmpty = Annotated[T, Field(exclude_if=is_empty)]


class Record(BaseModel):
    """A JSON object. Fields are declared in the order they are written."""

    model_config = ConfigDict(
        extra="allow",  # rule 5
        strict=True,
        allow_inf_nan=False,  # JSON has no NaN
        defer_build=True,  # the validator is built on first use, under pydantic's lock: most commands need few records
    )


class AliasedRecord(Record):
    """A record with a member in ALIASES. Either spelling is read; both at once are a duplicate field."""

    @model_validator(mode="after")
    def _reject_both_spellings(self) -> Self:
        # pydantic takes the first spelling it finds and leaves the second among the unknown members.
        for name, alias in ALIASES.items():
            if alias in (self.model_extra or ()) and name in type(self).model_fields:
                raise PydanticCustomError(
                    "duplicate_field",
                    "duplicate field: {name} is also present as {alias}",
                    {"name": name, "alias": alias},
                )
        return self
