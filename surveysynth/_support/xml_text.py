"""Text that an XML file can hold."""

import re

_NONE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def has_control(text: str) -> bool:
    """Return True if a text has characters that XML cannot contain, such as control characters."""
    return _NONE.search(text) is not None


def visible(text: str) -> str:
    """Return the text with such characters as numbers, so that different texts still differ."""
    return _NONE.sub(lambda sign: f"\\x{ord(sign[0]):02x}", text)


def xml_text(text: str) -> str:
    """Return the text on one line, without characters that XML cannot contain."""
    return " ".join(_NONE.sub("", text).split())
