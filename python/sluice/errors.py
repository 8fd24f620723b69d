"""Errors of the library. Each kind has a class, which is also the builtin class that Python
programs expect for such an error."""


class Error(Exception):
    """Base class of all errors of Sluice. `exit_code` is that of the command line."""

    kind = "internal"
    exit_code = 1


class InternalError(Error, RuntimeError):
    """A defect of Sluice itself."""


class UsageError(Error, ValueError):
    """A wrong argument, shape, name or order of calls."""

    kind = "usage"
    exit_code = 2


class ArgumentTypeError(Error, TypeError):
    """An argument of a wrong Python type."""

    kind = "usage"
    exit_code = 2


class BadFileError(Error, ValueError):
    """A file whose contents are not what they must be."""

    kind = "bad file"
    exit_code = 3


class DoesNotFit(Error, MemoryError):
    """The program needs more memory than the budget.

    `bytes_needed` and `bytes_available` are those of the first memory that is too small; `remedy`
    names a program that fits, or is empty.
    """

    kind = "does not fit"
    exit_code = 4


class IoError(Error, OSError):
    """The operating system refused a read, a write or space."""

    kind = "io"
    exit_code = 5


class Diverged(Error, ArithmeticError):
    """A loss became NaN or infinite, or replicas differ."""

    kind = "diverged"
    exit_code = 6


class NoCheckpoint(Error, FileNotFoundError):
    """No usable checkpoint was found."""

    kind = "no checkpoint"
    exit_code = 7


class PeerLost(Error, ConnectionError):
    """Another replica, rank or device is gone."""

    kind = "peer lost"
    exit_code = 8


class Stopped(Error):
    """A signal or a stop request ended the work."""

    kind = "stopped"
    exit_code = 75
