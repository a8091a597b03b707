# SPDX-License-Identifier: Apache-2.0
"""What Stretto raises: one class per code, all of them Errors."""

from __future__ import annotations


class Error(RuntimeError):
    """Says what happened, where, what was found, what was expected, and what to do.

    Attributes that do not apply are empty strings. `code` is the same word as in the program's JSON.
    """

    code = "backend"

    def __init__(
        self, message: str, where: str = "", found: str = "", expected: str = "", help: str = ""
    ) -> None:
        text = message + (f" ({where})" if where else "")
        if found or expected:
            text += "; " + ", ".join(
                part for part in (found and f"found {found}", expected and f"expected {expected}") if part
            )
        if help:
            text += f". {help}"
        super().__init__(text)
        self.message = message
        self.where = where
        self.found = found
        self.expected = expected
        self.help = help

    def __reduce__(self):
        return (type(self), (self.message, self.where, self.found, self.expected, self.help))


class InvalidArgument(Error, ValueError):
    """The caller passed something that can never work."""

    code = "invalid_argument"


class ParseError(Error, ValueError):
    """A file or text does not have the promised form."""

    code = "parse"


class Unavailable(Error):
    """This machine or build lacks what is needed."""

    code = "unavailable"


class Timeout(Error, TimeoutError):
    """Something did not happen within its time."""

    code = "timeout"


class BackendError(Error):
    """The layer below (operating system, process group) failed, or a rank's own code did."""

    code = "backend"


class Mismatch(Error):
    """Ranks disagree: models, plans, sizes, types."""

    code = "mismatch"


class PeerLost(Error, ConnectionError):
    """Another rank died or left."""

    code = "peer_lost"


class NeverReady(Error):
    """A step ended before all its gradients were ready."""

    code = "never_ready"


class ReadyTwice(Error):
    """A gradient changed after it had been handed over."""

    code = "ready_twice"


_CLASSES = {
    cls.code: cls
    for cls in (
        InvalidArgument,
        ParseError,
        Unavailable,
        Timeout,
        BackendError,
        Mismatch,
        PeerLost,
        NeverReady,
        ReadyTwice,
    )
}


def make(code: str, message: str, where: str = "", found: str = "", expected: str = "", help: str = "") -> Error:
    """The exception for a code; the C++ library's come through here."""
    return _CLASSES.get(code, BackendError)(message, where, found, expected, help)
