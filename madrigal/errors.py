"""The one exception that a user is meant to read."""


class UserError(Exception):
    """A mistake that the user can mend: one sentence that says what, where and what to do.

    The command line prints it without a traceback and leaves with status 2.
    """
