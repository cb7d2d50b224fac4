"""Text that an XML file can hold."""

import re

_NONE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def has_control(text: str) -> bool:
    """Whether a text has signs that XML has no way to write, such as control characters."""
    return _NONE.search(text) is not None


def visible(text: str) -> str:
    """The text with such signs as their numbers, so that texts that differ in them still differ."""
    return _NONE.sub(lambda sign: f"\\x{ord(sign[0]):02x}", text)


def xml_text(text: str) -> str:
    """The text on one line, without signs that XML has no way to write."""
    return " ".join(_NONE.sub("", text).split())
