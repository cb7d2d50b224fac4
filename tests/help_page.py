"""The help of every command, without the layout that versions of the parser give it.

    python -m tests.help_page

writes golden/help.md. Read a changed help there, as a user who has not read the documentation.
"""

from pathlib import Path

import typer

from surveysynth import cli

GOLDEN = Path(__file__).parent / "golden" / "help.md"
PREAMBLE = "# Help of the commands\n\nMade by `python -m tests.help_page`.\n"


def as_page() -> str:
    """Return the help of all commands, in their order."""
    parts = [PREAMBLE]
    for name, command in typer.main.get_command(cli.app).commands.items():  # type: ignore[attr-defined]
        lines = [f"## {name}\n\n{command.help.strip()}\n"]
        for each in command.params:
            words = each.opts + each.secondary_opts if each.param_type_name == "option" else []
            words += [each.metavar] if each.metavar else []
            lines.append(f"- `{' '.join(words)}`: {each.help}{' Required.' * each.required}")
        parts.append("\n".join(lines) + "\n\n" + command.epilog.removeprefix("\b\n") + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    GOLDEN.write_text(as_page(), encoding="utf-8")
