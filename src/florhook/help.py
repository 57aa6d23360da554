"""What `--help` shows: a page for all, and one for each subcommand."""

from __future__ import annotations

PAGE = """\
florhook records a training program as it is, and shows later what a print would have printed in that run.

First steps:
  florhook train.py --lr 0.1       run the program as always, and record it (the store: .florhook in this folder)
  ...                              add a print to train.py, in a loop, a function, anywhere
  florhook replay                  what that print would have shown; it takes seconds, not a training
  florhook runs                    the recorded runs
  florhook logs                    what a run printed, with epoch and step; florhook view: as curves
`florhook` and `python -m florhook` are the same. florhook doctor tells whether all of it works here.

usage: florhook [options] PROGRAM [its arguments...]     PROGRAM: train.py, -m package.module, -c code, a folder, a zip
       florhook [options] SUBCOMMAND ...                 florhook SUBCOMMAND --help tells more of each

look at runs
  runs                 list the recorded runs
  show RUN             one run in detail
  logs                 what a run printed, with what replays printed, or the values that are named in it
  view                 curves, times and sources of runs as one HTML page
  diff RUN RUN         what two runs differ in, and where their states part
  export               named values for TensorBoard, MLflow or Weights & Biases
ask a run for more
  replay [RUN]         show what prints that you added would have printed; --probe asks without an edit
  shell RUN            a Python prompt at a place of a run
  (FLOR_MODE=resume florhook train.py continues a run that crashed or was killed)
keep the store in order
  gc                   give back room: what no run needs, what a limit is short of
  pin RUN, unpin RUN   what gc and --max-bytes never remove
  verify               whether all that the runs have stored can be read back
  push                 upload what is left, where the store is at a URL
set up
  init                 a [tool.florhook] table in pyproject.toml, and a line in .gitignore
  doctor               whether florhook works here; with a program: what is recorded of it
  completion SHELL     the Tab key, for bash, zsh and fish
  sitedir              the folder for PYTHONPATH that makes plain python record

RUN is a run's id, its unique beginning, or last.

options, each also a variable (FLOR_MODE for --mode) and a key of [tool.florhook] in pyproject.toml (mode):
  --mode MODE          record (default), replay, resume, off
  --home FOLDER        the store (default: .florhook in the working folder), or a URL: s3://bucket/prefix
  --stats FILE         write the figures of the run to FILE as JSON
 of recording
  --epsilon SHARE      the most that recording may add to the time (default 0.0667); inf: every boundary
  --max-bytes N        the most that the store may take, 500M or 20G: older checkpoints are thinned out evenly
 of replaying
  --run RUN            which run to replay or resume (default: the last one of the program)
  --workers N          replay processes (default 1), or auto: by cores or GPUs, and memory
  --executor WHERE     where the processes run: local (default), ray or slurm
  --cluster CHOICE     which cluster, and options: ray://head:10001,num_gpus=1 or partition=gpu,timeout_min=120
  --select CHOICE      which iterations: epoch=3:5, epoch=::10, step=400:, by the loop variable's value, or by the
                       iteration's number where the variable is no number
  --log WHAT           what is printed: hindsight (default: the new prints) or all
  -q, --quiet          show no progress
 of resuming
  --at PLACE           go on before the iteration with that loop variable, epoch=7, as a new run of the program of now
options without a variable, of replaying:
  --plan               show what would run and about how long that takes, and stop
  --probe FILE:LINE:EXPRESSION [if CONDITION]
                       show expressions before a line runs, as if you had added a print there
  --until EXPRESSION   the first iteration after which it is true; FILE:LINE:EXPRESSION asks before that line instead
  --monotone           the --until expression, once true, stays true: search by bisection
  --runs CHOICE        with florhook replay: ask several runs, also of older versions of the program: last:5, all,
                       args:TEXT (in their arguments), or ids with commas
  --force              go on in spite of an edit that changes the program, or of other arguments
  --trust              replay a store that another user wrote
  --help, --version
only variables: FLOR_INCLUDE, FLOR_EXCLUDE (also keys): patterns of modules to treat as yours, or not; FLOR_KEY: the
file of the key that signs what is recorded.
"""

_LOGS = """\
  --select CHOICE   only these iterations: epoch=3:5
  --replay WHICH    all: every replay that printed, or a replay's id (default: the newest)
"""

SUBCOMMANDS = {
    "runs": """\
usage: florhook runs
Lists the recorded runs, oldest first: program, arguments, when, how long, exit code, iterations, checkpoints, bytes.
""",
    "show": """\
usage: florhook show [RUN]
Tells all of one run: folder, versions, modules, loops with their checkpoints, and what recording cost.
""",
    "replay": """\
usage: florhook replay [RUN] [options]
Runs a recorded program again with the arguments that it had, but only what the new prints need, and shows what they
would have printed then. Add prints to the program before, or ask with --probe. No file of yours is changed.
  --probe FILE:LINE:EXPRESSION [if CONDITION]
                    show expressions before a line runs; may be given several times
  --until EXPRESSION
                    the first iteration after which it is true, and the step in it
  --monotone        once true, it stays true: search by bisection
  --select CHOICE   only these iterations: epoch=3:5, epoch=::10, step=400:
  --workers N       so many processes, or auto
  --executor WHERE  where they run: local, ray or slurm
  --cluster CHOICE  which cluster, and options for it
  --runs CHOICE     several runs, also of older versions: last:5, all, args:TEXT, ids with commas
  --log WHAT        hindsight (default): the new prints; all: all that the program prints
  --plan            show what would run and about how long that takes, and stop
  --force           in spite of an edit that changes what the program computes
  --trust           a store that another user wrote
  -q, --quiet       no progress
  --stats FILE      write figures as JSON
example: florhook replay last --probe 'train.py:57:loss.item(), net.fc.weight.norm() if epoch > 3'
""",
    "logs": f"""\
usage: florhook logs [RUN] [NAME...] [options]
Shows what the last run printed, or RUN, with the loops around each line; with names, the values printed under them.
{_LOGS}\
  --pivot           one row for each iteration, one column for each name
  --csv, --json     as CSV, or as a JSON object for each line
  --parquet FILE    as a Parquet file
example: florhook logs loss grad_norm --pivot --csv
""",
    "export": f"""\
usage: florhook export [RUN] [NAME...] --tensorboard FOLDER | --mlflow FOLDER | --wandb FOLDER
Writes the values that a run printed, or those under some names, at their true steps for another tool.
{_LOGS}\
""",
    "view": """\
usage: florhook view [RUN]... [options]
Writes curves, times and sources of runs as one HTML page that opens from disk.
  -o, --output FILE the page (default: florhook.html)
  --open            open it in a browser
  --serve           serve it on this machine until Ctrl-C, for a run that is going on; prints its address
  --port N          at this port
""",
    "diff": """\
usage: florhook diff RUN RUN [--json]
Tells what two runs differ in: arguments, environment, code, output, and the first iteration and variables at which
their states part. The exit code is 1 where anything differs.
""",
    "verify": """\
usage: florhook verify [RUN | --all]
Reads back all that a run has in the store, or all runs, and tells what is damaged. The exit code is 1 where something
is.
""",
    "shell": """\
usage: florhook shell RUN [--at PLACE]
Opens a Python prompt (IPython where it is installed) inside the recorded program, at a place such as epoch=12 or
epoch=3,step=10; without --at at the newest state. What is written there changes no file.
""",
    "doctor": """\
usage: florhook doctor [-v] [PROGRAM]
Without a program: tells whether florhook works here. With one (train.py, -m package.module): which of its modules and
loops are recorded, and why. Nothing of it is run.
  -v, --verbose     all modules, those of libraries too
""",
    "gc": """\
usage: florhook gc [options]
Gives back what no run needs: chunks, what crashes left behind, folders of old replays.
  --max-bytes N     thin out checkpoints until the store takes no more: 500M, 20G
  --delete RUN      remove a run, with its record; may be given several times
  --compact         store the same checkpoints in fewer bytes
  --dry-run         tell what would be done, and change nothing
""",
    "pin": """\
usage: florhook pin RUN [--at PLACE]
Keeps a run's checkpoints, or the one from which epoch=7 is reached, whatever gc and --max-bytes do.
""",
    "unpin": """\
usage: florhook unpin RUN
Lets go of what pin keeps.
""",
    "push": """\
usage: florhook push
Uploads what is left to upload, where the store is at a URL.
""",
    "init": """\
usage: florhook init [--dry-run]
Sets a project up: adds a [tool.florhook] table, with all keys commented out, to the pyproject.toml in this folder or
above (or makes one here), and the store to .gitignore where this is a git work tree. Nothing is overwritten.
  --dry-run         tell what would be done, and change nothing
""",
    "completion": """\
usage: florhook completion bash | zsh | fish
Prints a script that makes the Tab key complete subcommands, options, runs and programs.
  bash: echo 'eval "$(florhook completion bash)"' >> ~/.bashrc
  zsh:  echo 'eval "$(florhook completion zsh)"' >> ~/.zshrc        (after compinit)
  fish: florhook completion fish > ~/.config/fish/completions/florhook.fish
""",
    "sitedir": """\
usage: florhook sitedir
Prints a folder. With it on PYTHONPATH, and FLOR_MODE set, a plain `python train.py` records:
  export PYTHONPATH="$(florhook sitedir)" FLOR_MODE=record
""",
}


def page_for(words: list[str]) -> str:
    """The page of the subcommand that the words begin with, or that of all."""
    return SUBCOMMANDS.get(words[0], PAGE) if words else PAGE
