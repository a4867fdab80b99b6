"""What people type: one file a command, each with `run(arguments) -> exit code`.

    main.py    finds the command; a mistake in flags or files is one line and exit code 2, something outside
               that is needed at the start and does not answer is one line and exit code 1
    agent.py   gpusteward agent
    serve.py   gpusteward serve

A command imports the room it runs only when it runs; nothing here thinks.
"""
