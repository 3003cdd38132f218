"""The subcommands of `memattn`, one a module with `add_arguments` and `run`."""
