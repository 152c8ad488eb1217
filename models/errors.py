"""What can go wrong with the store. All survive a pickle round trip.

StoreError
├── DatabaseDownError     cannot be reached, or did not come back in time
├── DatabaseUrlError      DATABASE_URL is not one we can use
├── SchemaError           the tables are older than this release
└── LeaseLostError        another worker has the session now: nothing of ours may be written
"""


class StoreError(Exception):
    """The store refused or could not be reached."""


class DatabaseDownError(StoreError):
    """The database cannot be reached."""


class DatabaseUrlError(StoreError):
    """DATABASE_URL is not usable."""


class SchemaError(StoreError):
    """The database schema does not fit this release."""


class LeaseLostError(StoreError):
    """The session's lease belongs to somebody else now."""
