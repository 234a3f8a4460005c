"""Why a launcher does not start, or stops."""


class LaunchRefused(Exception):
    """Something that must hold does not. The message is for the operator and says what to do."""
