"""A person's direct chat with agents: its lines, and how they go on."""
