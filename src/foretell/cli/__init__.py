"""The command line: one file a command; heavy imports happen inside the commands."""
