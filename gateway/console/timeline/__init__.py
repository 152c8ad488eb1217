"""A session as a timeline: entries of turns, made of events and rows, shown as a page and as it goes on."""
