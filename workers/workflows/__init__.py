"""Work that takes several agents: who does what, in which order, and what comes of it."""
