"""What a person said: yes to one agreement, or no to all of them.

An agreement is the plan, the address and the limit, byte for byte. A tool whose next version asks
something else has no yes for it, and asks again. A no holds for every version.
"""

from __future__ import annotations

import os

from shoal.device.telemetry.home import agreement_folder, read_file, store_file

__all__ = ["Choice", "agreed_window", "agreement_text", "read_choice", "say_no", "say_yes"]

Choice = str
"""`yes`, `no`, `not asked`, or `changed`: a yes was given to another plan, address or limit."""

_HEAD = b"What was agreed to, and nothing else: a plan, an address, a limit.\n"
_AGREED, _OFF = "agreed", "off"


def agreement_text(plan: bytes, to: str, limit: str, public_key: str) -> bytes:
    """Return the one text of an agreement; the plan's bytes stand at its end as they are."""
    fields = f"to: {to}\nlimit: {limit}\nkey: {public_key}\n\n"
    return _HEAD + fields.encode() + plan


def read_choice(home: str, agreement: bytes) -> Choice:
    """Return what the person said about an agreement."""
    if os.path.exists(os.path.join(home, _OFF)):
        return "no"
    if agreed_window(home, agreement) is not None:
        return "yes"
    try:
        names = os.listdir(home)
    except OSError:
        return "not asked"
    others = any(os.path.exists(os.path.join(home, name, _AGREED)) for name in names)
    return "changed" if others else "not asked"


def agreed_window(home: str, agreement: bytes) -> int | None:
    """Return the length of the plan's windows in seconds, if the person said yes to it."""
    stored = read_file(agreement_folder(home, agreement), _AGREED)
    window, _, agreed = (stored or b"").partition(b"\n")
    return int(window) if agreed == agreement and window.isdigit() else None


def say_yes(home: str, agreement: bytes, window: int) -> None:
    """Keep a yes to this agreement; a no that was said before is over."""
    content = b"%d\n%s" % (window, agreement)
    store_file(agreement_folder(home, agreement), _AGREED, content)
    try:  # noqa: SIM105  contextlib takes longer to load than all of this
        os.unlink(os.path.join(home, _OFF))
    except FileNotFoundError:
        pass


def say_no(home: str) -> None:
    """Keep a no, to this and every other agreement."""
    store_file(home, _OFF, b"Telemetry is off.\n")
