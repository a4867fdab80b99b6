"""What people type: one file a command, each with `run(arguments) -> exit code`.

    main.py        finds the command; a mistake in flags or files is one line and exit code 2, something outside
                   that is needed and does not answer is one line and exit code 1
    agent.py       gpusteward agent
    serve.py       gpusteward serve
    up.py          gpusteward up
    demo.py        gpusteward demo
    top.py         gpusteward top; the screen is in screen/
    idle.py        gpusteward idle
    explain.py     gpusteward explain
    ps.py          gpusteward ps
    doctor.py      gpusteward doctor; what it looks at is in checks/
    report.py      gpusteward report; its tables are in report_table.py
    settings.py    gpusteward settings
    completion.py  gpusteward completion; the scripts are in shells.py

    client.py      a running analyzer or agent over HTTP; lists.py: its lists, page after page
    flags.py       what the flags of these commands have in common; exits.py: exit codes
    outputs.py     rows as table, JSON, CSV; paragraphs.py: text; consoles.py: rich's way to print; progress.py: how
                   far long work has come
    texts.py       text from outside made fit for a terminal; rows.py: values out of JSON; quantities.py: numbers

A command imports the room it runs only when it runs; nothing here thinks. Commands with `build_parser` have their
flags completed by shells.
"""
