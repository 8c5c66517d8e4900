"""Jobs on whole topics: archive, restore, profile, audit (docs/jobs.md).

Each is a module with the function `main(arguments, defaults)`, which the command `tidelog job NAME` calls, and a
program: `python -m tidelog.jobs.NAME` or `spark-submit .../tidelog/jobs/NAME.py`, with the same arguments. Standard
output is for results, standard error for progress and errors.
"""
