"""Attachments: file names, MIME types, references, and decoding of input data."""

import base64
import mimetypes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.documents import attachment_names
from store.documents.attachment_names import extension_to_mime, find_name, mime_to_extension, parse_reference, reference
from store.errors import InvalidContent

UUID = "5c2f7a54-9d1e-4c52-b1d8-7a1f8d1d0001"
KNOWN = sorted({*mimetypes.MimeTypes().types_map[1].values(), *mimetypes.MimeTypes().types_map[0].values()})
TOKENS = st.from_regex(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,30}", fullmatch=True)
TOPS = st.sampled_from(["application", "audio", "font", "image", "message", "model", "multipart", "text", "video"])


def check_round_trip(mime: str) -> None:
    extension = mime_to_extension(mime)
    assert extension is not None
    assert extension_to_mime(extension) == mime
    assert find_name("id", [f"id.{extension}"]) == f"id.{extension}"
    assert "/" not in extension


@pytest.mark.parametrize("mime", KNOWN)
def test_every_mime_type_of_python_round_trips(mime: str) -> None:
    """The type is stored only in the extension, so the extension must map back to it."""
    check_round_trip(mime)


@given(TOPS, TOKENS)
def test_any_mime_type_round_trips(top: str, sub: str) -> None:
    """Unknown types too, with every character that a type may contain."""
    check_round_trip(f"{top}/{sub}")


@pytest.mark.parametrize(
    ("mime", "extension"),
    [
        ("image/png", "png"),
        ("image/jpeg", "jpg"),
        ("image/webp", "webp"),
        ("image/gif", "gif"),
        ("image/bmp", "bmp"),
        ("application/octet-stream", "bin"),
        ("application/pdf", "pdf"),
        ("text/plain", "txt"),
        ("IMAGE/PNG", "png"),
        (" image/png ; charset=x", "png"),
        ("application/x-foo", "application_x-foo"),
        ("application/vnd.api+json", "application_vnd,api+json"),
    ],
)
def test_well_known_extensions(mime: str, extension: str) -> None:
    """Bamboo's table first, then the well-known extensions, then the type itself."""
    assert mime_to_extension(mime) == extension


@pytest.mark.parametrize(
    "mime",
    [
        "",
        "png",
        "image/",
        "/png",
        "image/p ng",
        "image/../../x",
        "image/a/b",
        "nonsense/x",
        "image/\0",
        "image/é",
        "a/b",
    ],
)
def test_invalid_mime_type_has_no_extension(mime: str) -> None:
    """Nothing that could become another path or an invalid name."""
    assert mime_to_extension(mime) is None


@pytest.mark.parametrize(
    ("extension", "mime"),
    [("jpeg", "image/jpeg"), ("JPG", "image/jpeg"), ("Png", "image/png"), ("bin", "application/octet-stream")],
)
def test_extensions_are_case_insensitive(extension: str, mime: str) -> None:
    """Like in Bamboo."""
    assert extension_to_mime(extension) == mime


@pytest.mark.parametrize("extension", ["", "nosuchthing", "image_", "_png", "nonsense_x"])
def test_unknown_extension_has_no_mime_type(extension: str) -> None:
    """Callers then use application/octet-stream."""
    assert extension_to_mime(extension) is None


# -- the ways bytes arrive --------------------------------------------------------------------------------


@given(st.binary(max_size=100))
def test_bytes_are_not_decoded(data: bytes) -> None:
    """Even if they look like base64 or a URL."""
    assert attachment_names.decode(data, "text/plain") == (data, "text/plain")
    assert attachment_names.decode(data, None) == (data, "application/octet-stream")


@given(st.binary(max_size=100), st.sampled_from(["", " ", "\n", "\r\n\t"]))
def test_base64_is_decoded(data: bytes, around: str) -> None:
    """Surrounding white space is ignored. Without a MIME type it is a PNG, as Bamboo assumes."""
    text = around + base64.b64encode(data).decode() + around
    assert attachment_names.decode(text, None) == (data, "image/png")
    assert attachment_names.decode(text, "image/gif") == (data, "image/gif")


@given(st.binary(max_size=100), TOPS, TOKENS)
def test_data_url_overrides_the_mime_type(data: bytes, top: str, sub: str) -> None:
    text = base64.b64encode(data).decode()
    assert attachment_names.decode(f"data:{top}/{sub};base64,{text}", "image/gif") == (data, f"{top}/{sub}")
    assert attachment_names.decode(f" DATA:{top}/{sub};charset=utf-8;BASE64, {text}\n", None) == (data, f"{top}/{sub}")


def test_data_url_without_a_type() -> None:
    """Uses the given type, else the default of RFC 2397."""
    assert attachment_names.decode("data:;base64,aGk=", "image/gif") == (b"hi", "image/gif")
    assert attachment_names.decode("data:;base64,aGk=", None) == (b"hi", "text/plain")


@pytest.mark.parametrize(
    "text", ["aGk", "aGk==", "a", "aG\nk=", "aG k=", "aGk=\n\naGk=", "aGk=x", "_-8=", "é", "aGk=\0", "=", "%"]
)
def test_invalid_base64_is_rejected(text: str) -> None:
    """Bad padding, inner newlines, another alphabet: rejected like in Bamboo."""
    for whole in (text, f"data:image/png;base64,{text}"):
        with pytest.raises(InvalidContent, match="attachment: invalid base64"):
            attachment_names.decode(whole, None)


@pytest.mark.parametrize(
    "text", ["data:image/png,aGk=", "data:image/png;base64", "data:", "data:text/plain;charset=x,hi"]
)
def test_data_url_without_base64_is_rejected(text: str) -> None:
    """Bamboo reads and writes base64 only."""
    with pytest.raises(InvalidContent, match="expected a base64 data URL"):
        attachment_names.decode(text, None)


# -- references and names ----------------------------------------------------------------------------------

PARTS = st.text(min_size=1).filter(lambda text: "/" not in text)


@given(PARTS, PARTS)
def test_references_round_trip(session_id: str, attachment_id: str) -> None:
    """A reference contains the session id and the attachment id."""
    assert parse_reference(reference(session_id, attachment_id)) == (session_id, attachment_id)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://x/y",
        "bamboo-attachment://",
        "bamboo-attachment://s1",
        "bamboo-attachment://s1/",
        "bamboo-attachment:///a",
        " bamboo-attachment://s/a",
    ],
)
def test_other_strings_are_not_references(url: str) -> None:
    """Both parts are required."""
    assert parse_reference(url) is None


def test_attachment_is_found_by_id() -> None:
    """The id, a dot, and an extension without dots."""
    names = ["b.png", "a.b.png", "a.png", "ab.png", "a", "a."]
    assert find_name("a", names) == "a.png"
    assert find_name("a.b", names) == "a.b.png"
    assert find_name("c", names) is None
    assert find_name("", names) is None
    assert find_name("A", names) is None


@pytest.mark.parametrize("name", [f"{UUID}.png.tmp.{UUID}", f"{UUID}.tmp.{UUID}", f"{UUID}.tar.gz", f"{UUID}.", UUID])
def test_temporary_files_are_not_attachments(name: str) -> None:
    """A crashed Bamboo leaves incomplete attachments behind."""
    assert find_name(UUID, [name]) is None
    assert find_name(UUID, [name, f"{UUID}.webp"]) == f"{UUID}.webp"


def test_temporary_file_is_not_found_by_a_longer_id() -> None:
    """Its last part has no dot, but it is temporary."""
    assert find_name(f"{UUID}.png.tmp", [f"{UUID}.png.tmp.{UUID}"]) is None
