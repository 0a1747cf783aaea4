"""How much of a refused request is worth a line in the log?"""

import logging


class OneLine(logging.Filter):
    """Drops the traceback of what is no failure of ours: a page that is not there, a right that is missing."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the record; its traceback only from an error on."""
        if record.levelno < logging.ERROR:
            record.exc_info = record.exc_text = None
        return True
