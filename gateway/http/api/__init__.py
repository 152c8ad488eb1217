"""The HTTP API, version 1: one file per resource. Every route asks the doorkeeper who calls; what it does is done by
`workers` (`operations`, `consent`, `intake`, `timetable`), the same as for the command line and the console."""
