"""The base of every stored record, and the words its fields are declared with.

A record says what serde would: which members must be there, which may be null, which are left out when
they are written. Unknown members survive (rule 5). Types are strict, because a document that loads here
must load in the agent that owns it (rule 6): `3.0` is no integer, `null` no list, 2**64 no u64.

Pure. models.py and its siblings declare with these words; nobody else needs them.
"""

import operator
from functools import partial
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticCustomError

T = TypeVar("T")

# Called for every such field at every dump, so both are C functions.
is_none = partial(operator.is_, None)
is_empty = operator.not_

# field name -> the other spelling that is read but never written
ALIASES: dict[str, str] = {"task_list": "todo_list", "active_form": "activeForm", "reference": "ref"}

U8 = Annotated[int, Field(ge=0, le=2**8 - 1)]
U32 = Annotated[int, Field(ge=0, le=2**32 - 1)]
U64 = Annotated[int, Field(ge=0, le=2**64 - 1)]  # usize too
I32 = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]


class NotNull:
    """Takes the null out of `T | None` when reading: None then only ever means that nothing was there."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        return schema["schema"] if schema["type"] == "nullable" else schema


# Option with skip: null reads as absent, None is not written.
Opt = Annotated[T | None, Field(exclude_if=is_none)]
# A member that some version does not write: may be missing, then None and not invented; null is an error.
Missing = Annotated[T | None, NotNull(), Field(exclude_if=is_none)]
# A member that is left out while it is false, 0 or empty.
OmitEmpty = Annotated[T, Field(exclude_if=is_empty)]


class Record(BaseModel):
    """Something stored as a JSON object. Fields are declared in the order they are written."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)  # rule 5; JSON has no NaN


class AliasedRecord(Record):
    """A record with a member in ALIASES: either spelling is read, both at once are a duplicate field."""

    @model_validator(mode="after")
    def _refuse_both_spellings(self) -> Self:
        # pydantic takes the first spelling it finds; the second one is then left among the unknown.
        for name, alias in ALIASES.items():
            if alias in (self.model_extra or ()) and name in type(self).model_fields:
                raise PydanticCustomError(
                    "duplicate_field",
                    "duplicate field: {name} is also present as {alias}",
                    {"name": name, "alias": alias},
                )
        return self
