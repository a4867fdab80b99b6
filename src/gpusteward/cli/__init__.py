"""What people type: one file a command, each with `run(arguments) -> exit code`.

    main.py    finds the command, and turns a mistake in flags or files into one line and exit code 2
    agent.py   gpusteward agent

A command imports the room it runs only when it runs; nothing here thinks.
"""
