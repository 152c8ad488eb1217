"""Celery entries, thin: each unpacks its arguments and calls the runtime. Names are explicit, so that moving a file
never orphans a queued message."""
