"""The command line.

    main.py         finds the command; prints an error as one line: exit code 2 for invalid flags and files, 1 for
                    servers, devices and files that are missing or fail
    flags.py        flags that several commands share
    entry_point.py  which program was started: `gpusteward` or `kubectl gpusteward`
    language.py     choice of the output language
    exit_codes.py   exit codes
    libraries.py    libraries that an image or a machine may lack
    json_access.py  typed access to JSON documents of a server

    commands/       one module per command: `build_parser()`, `run(arguments) -> exit code`
    api/            access to the HTTP APIs of the analyzer and the agent
    output/         tables, CSV, JSON, paragraphs, progress
    kubectl/        the plugin `kubectl gpusteward`: the commands that read, through the API server of a kubeconfig
    top/            the terminal UI of `gpusteward top`
    doctor/         the checks of `gpusteward doctor`

A command imports the program it runs only when it runs. No calculations here: they belong to the programs.
"""
