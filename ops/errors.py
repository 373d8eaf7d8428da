"""What a person got wrong, or what their machine lacks."""


class UserError(Exception):
    """One clear line for the person at the command line: shown without a traceback, exit code 1."""
