"""The console: server-rendered pages over the same operations as the API and the command line."""
