"""Parser for GNU grep's command line, as far as options decide which files must be read. Pure.

A line that is not understood is passed to grep unchanged, with every file. All messages about wrong
options come from grep. Imports little: `grovefs grep` starts here.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from store.search.grep.regex_trigrams import Syntax

_SHORT_WITH_VALUE = "ABCDXdefm"
_SHORT_PLAIN = "0123456789EFGHILPTUVabchilLnoqRrsuvwxyZz"
# Long options and their short form or, without one, their own name. "=": takes a value; "?": may take one.
_LONG = {
    "after-context": "A=", "basic-regexp": "G", "before-context": "B=", "binary": "U", "binary-files": "binary-files=",
    "byte-offset": "b", "color": "color?", "colour": "color?", "context": "C=", "count": "c",
    "dereference-recursive": "R", "devices": "D=", "directories": "d=", "exclude": "exclude=",
    "exclude-dir": "exclude-dir=", "exclude-from": "exclude-from=", "extended-regexp": "E", "file": "f=",
    "files-with-matches": "l", "files-without-match": "L", "fixed-regexp": "F", "fixed-strings": "F",
    "group-separator": "group-separator=", "help": "help", "ignore-case": "i", "include": "include=",
    "initial-tab": "T", "invert-match": "v", "label": "label=", "line-buffered": "line-buffered", "line-number": "n",
    "line-regexp": "x", "max-count": "m=", "no-filename": "h", "no-group-separator": "no-group-separator",
    "no-ignore-case": "no-ignore-case", "no-messages": "s", "null": "Z", "null-data": "z", "only-matching": "o",
    "perl-regexp": "P", "quiet": "q", "recursive": "r", "regexp": "e=", "silent": "q", "text": "a",
    "unix-byte-offsets": "u", "version": "V", "with-filename": "H", "word-regexp": "w",
}  # fmt: skip
_SYNTAX: dict[str, Syntax] = {"E": "extended", "F": "fixed", "G": "basic", "P": "perl"}
# With these grep also reports files without a match, or selects files in other ways.
_READ_ALL = ("v", "c", "L", "R", "d", "D", "X", "V", "help", "exclude-dir", "exclude-from")


class GrepOptions:
    """One command line. `narrowable`: reading only the files that can match gives the same output."""

    def __init__(self) -> None:
        self.arguments: list[bytes] = []  # for grep, before the file names; without --include and --exclude
        self.patterns: list[bytes] = []
        self.pattern_files: list[bytes] = []
        self.filters: list[tuple[bool, bytes]] = []  # (is_include, glob), in order
        self.operands: list[bytes] = []
        self.syntax: Syntax = "basic"
        self.fold = False
        self.narrowable = True
        self.line: list[bytes] = []  # as typed
        self.is_understood = True
        self.is_complete = True  # no option lacks its value
        self.in_one_run = False  # the output depends on earlier output of the same process

    @property
    def has_pattern(self) -> bool:
        return bool(self.patterns or self.pattern_files or self.operands)


def parse(line: list[bytes]) -> GrepOptions:
    """Parse the arguments after `grep`. Options and operands may be mixed, as getopt allows."""
    options = GrepOptions()
    options.line = line
    syntaxes: set[str] = set()
    given = iter(line)
    for argument in given:
        if argument == b"--":
            options.operands += given
        elif argument.startswith(b"--"):
            _long(options, argument, given, syntaxes)
        elif argument.startswith(b"-") and argument != b"-":
            _cluster(options, argument, given, syntaxes)
        else:
            options.operands.append(argument)
    if not options.patterns and not options.pattern_files and options.operands:
        options.patterns.append(options.operands.pop(0))
        options.arguments += [b"-e", options.patterns[0]]
    if len(syntaxes) > 1 or options.operands or not options.has_pattern or not options.is_understood:
        options.narrowable = False
    for letter in syntaxes:
        options.syntax = _SYNTAX[letter]
    return options


def _long(options: GrepOptions, argument: bytes, given: object, syntaxes: set[str]) -> None:
    name, equals, value = argument[2:].partition(b"=")
    text = name.decode("ascii", "replace")
    meanings = {_LONG[text]} if text in _LONG else {m for long, m in _LONG.items() if long.startswith(text)}
    if len(meanings) != 1:
        options.is_understood = False  # unknown or ambiguous: grep reports it
        return
    meaning = meanings.pop()
    takes_value = meaning.endswith("=")
    meaning = meaning.rstrip("=?")
    if takes_value and not equals:
        value = _value(options, given)
    elif equals and not takes_value and meaning != "color":
        options.is_understood = False
        return
    spelled = [argument] if equals or not takes_value else [argument, value]
    _apply(options, meaning, value, spelled, syntaxes)


def _cluster(options: GrepOptions, argument: bytes, given: object, syntaxes: set[str]) -> None:
    text = argument[1:].decode("latin-1")
    for at, letter in enumerate(text):
        if letter in _SHORT_WITH_VALUE:
            rest = argument[at + 2 :]
            value = rest or _value(options, given)
            _apply(options, letter, value, [b"-" + letter.encode(), value], syntaxes)
            return
        if letter not in _SHORT_PLAIN and letter != "y":
            options.is_understood = False
            return
        _apply(options, letter, b"", [b"-" + letter.encode("latin-1")], syntaxes)


def _value(options: GrepOptions, given: object) -> bytes:
    value = next(given, None)  # type: ignore[call-overload]
    if value is None:
        options.is_understood = options.is_complete = False  # grep reports it
        return b""
    assert isinstance(value, bytes)
    return value


def _apply(options: GrepOptions, meaning: str, value: bytes, spelled: list[bytes], syntaxes: set[str]) -> None:
    if meaning in ("include", "exclude"):
        options.filters.append((meaning == "include", value))
        return
    if meaning == "e":
        options.patterns.append(value)
    elif meaning == "f":
        options.pattern_files.append(value)
    elif meaning in _SYNTAX:
        syntaxes.add(meaning)
    elif meaning in ("i", "y"):
        options.fold = True
    elif meaning in _READ_ALL:
        options.narrowable = False
    elif meaning in "ABC0123456789q" or meaning == "line-buffered":
        options.in_one_run = True
    options.arguments += spelled
