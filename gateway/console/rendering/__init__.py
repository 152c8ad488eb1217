"""How the console shows things: templates and their filters, texts from outside, Markdown, charts, differences."""
