#!/usr/bin/env bash
# The command of the container image, and what it makes of its arguments:
#
#   train.py --lr 0.1      -m shop.train       records (or replays, as FLOR_MODE says) the program
#   florhook runs          runs                a florhook subcommand
#   (none)                                     florhook's help
#
# Everything is kept in FLOR_HOME (/flor, where a volume is to be mounted); FLOR_MODE and the other FLOR_* variables
# pass through. Python takes this script's place (exec): it gets the signals, and its exit code is the container's.
set -euo pipefail

export FLOR_HOME="${FLOR_HOME:-/flor}"

if [ "${1:-}" = florhook ]; then
    shift
fi
if [ $# -eq 0 ]; then
    set -- --help
fi
exec python -m florhook "$@"
