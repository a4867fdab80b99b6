"""One module per command: `build_parser()` and `run(arguments) -> exit code`. The agent's parser is in its settings."""
