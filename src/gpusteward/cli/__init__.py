"""The command line.

    main.py         finds the command; prints an error as one line: exit code 2 for invalid flags and files, 1 for
                    servers, devices and files that are missing or fail
    program.py      which program was started, `gpusteward` or `kubectl gpusteward`; exit codes, language, libraries
    flags.py        flags that several commands share
    json_access.py  `Row`: typed access to JSON documents of a server

    commands/       one module per command: `build_parser()`, `run(arguments) -> exit code`
    api/            access to the HTTP APIs of the analyzer and the agent
    output/         tables, CSV, JSON, paragraphs, progress
    kubectl/        the plugin `kubectl gpusteward`: the commands that read, through the API server of a kubeconfig
    top/            the terminal UI of `gpusteward top`
    doctor/         the checks of `gpusteward doctor`

A command imports the program it runs only when it runs. No calculations here: they belong to the programs.
Documents of servers are read key by key with the standard library, because the plugin's archive for krew runs without
anything installed, and because an older or newer server may lack a key or have another type there.
"""
