# Sourced by the other scripts: the repository's own virtual environments.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# An unpinned torch brings several gigabytes along.
torch="torch==2.13.0"

# make_venv FOLDER PIP_ARGUMENT...
# Sets `python` to the interpreter of a virtual environment in FOLDER, made with $PYTHON (python3) and these
# requirements. It is used again until the interpreter, the requirements or setup.cfg change.
make_venv() {
    local folder=$root/$1 base=${PYTHON:-python3} wanted
    shift
    if ! wanted=$("$base" -c 'import sys; print(sys.base_prefix, sys.version); sys.exit(sys.version_info < (3, 10))'); then
        echo "$base: Python 3.10 or newer is needed; set PYTHON to one" >&2
        return 1
    fi
    wanted=$(printf '%s\n' "$wanted" "$root" "$@"; cat "$root/setup.cfg")
    python=$folder/bin/python
    if [ "$wanted" = "$(cat "$folder/made-of" 2>/dev/null)" ]; then
        return 0
    fi
    echo "making ${folder#"$root/"} (once) ..." >&2
    "$base" -m venv --clear "$folder" &&
        (cd "$root" && pip_install "$@") &&
        printf '%s\n' "$wanted" >"$folder/made-of"
}

pip_install() {
    "$python" -m pip install -qq --disable-pip-version-check "$@"
}

has_module() {
    "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$1') is None)"
}
