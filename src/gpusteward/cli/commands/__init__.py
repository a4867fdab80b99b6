"""One module per command, each with `build_parser()` and `run(arguments) -> exit code`."""
