"""`florhook completion SHELL`: scripts that make the Tab key complete subcommands, options, runs and programs.

What the command line takes stands in the scripts as they are printed. The runs are asked for when the key is pressed,
by `florhook completion runs`, which reads the catalog and nothing else.
"""

from __future__ import annotations

import re

from . import cli
from .errors import StoreError, UsageError
from .help import SUBCOMMANDS as PAGES
from .settings import Settings
from .store.store import Store

TAKE_RUNS = ("show", "replay", "logs", "export", "view", "diff", "verify", "shell", "pin", "unpin")
FILES = ("--stats", "--output", "-o", "--parquet")
FOLDERS = ("--home", "--tensorboard", "--mlflow", "--wandb")
RUNS = ("--run", "--delete")
WORDS = {
    "--mode": ("record", "replay", "resume", "off"),
    "--log": ("hindsight", "all"),
    "--workers": ("auto", "1", "2", "4", "8"),
    "--epsilon": ("inf",),
}
MOST_RUNS = 200  # the newest


def completion(settings: Settings, words: list[str]) -> None:
    """Print the script of a shell, or the ids of the runs."""
    if words == ["runs"]:
        print("\n".join(_runs(settings)))
        return
    scripts = {"bash": BASH, "zsh": ZSH, "fish": FISH}
    if len(words) != 1 or words[0] not in scripts:
        raise UsageError(f"completion takes one of {', '.join(scripts)}")
    print(_filled(scripts[words[0]], words[0]), end="")


def _runs(settings: Settings) -> list[str]:
    """Ids, the newest first, and `last`."""
    try:
        with Store.open(settings.home) as store:
            runs = [run.id for run in store.runs() if run.rank == 0]
    except StoreError:
        return []
    return ["last", *reversed(runs[-MOST_RUNS:])] if runs else []


def options_of(page: str) -> list[str]:
    """The options that a page of the help names."""
    return list(dict.fromkeys(re.findall(r"(?<![\w-])--?[a-z][\w-]*", page.split("\nexample:")[0])))


def options_before_all() -> list[str]:
    """Those of the command line itself."""
    return [f"--{name.replace('_', '-')}" for name in (*cli.VALUES, *cli.SWITCHES)] + ["-q"]


def with_value() -> list[str]:
    """The options that a value follows."""
    own = [f"--{name.replace('_', '-')}" for name in cli.VALUES]
    return [*own, *(name for name in (*FILES, *FOLDERS, *RUNS, "--port", "--replay") if name not in own)]


def subcommands() -> list[str]:
    return sorted([*cli.SUBCOMMANDS, "replay"])


def _filled(script: str, shell: str) -> str:
    values = {
        "SUBCOMMANDS": " ".join(subcommands()),
        "OPTIONS": " ".join(options_before_all()),
        "WITH_VALUE": "|".join(with_value()),
        "TAKE_RUNS": "|".join(TAKE_RUNS),
        "FILES": "|".join(FILES),
        "FOLDERS": "|".join(FOLDERS),
        "RUNS": "|".join(RUNS),
        "WORD_CASES": "\n".join(f"        {name}) words='{' '.join(of)}';;" for name, of in WORDS.items()),
        "OPTION_CASES": "\n".join(f"        {name}) words='{_options(name)}';;" for name in subcommands()),
        "FISH_LINES": "\n".join(_fish_lines()) if shell == "fish" else "",
    }
    for name, text in values.items():
        script = script.replace(f"@{name}@", text)
    return script


def _options(subcommand: str) -> str:
    return " ".join(dict.fromkeys([*options_of(PAGES[subcommand]), "--help"]))


def _fish_lines() -> list[str]:
    lines = [f"complete -c florhook -n __florhook_first -a '{' '.join(subcommands())}'"]
    lines += [_fish_option("__florhook_first", name) for name in options_before_all()]
    for name in subcommands():
        lines += [_fish_option(f"'__florhook_in {name}'", option) for option in _options(name).split()]
    return lines


def _fish_option(condition: str, option: str) -> str:
    kind = "-l" if option.startswith("--") else "-s"
    line = f"complete -c florhook -n {condition} {kind} {option.lstrip('-')}"
    if option not in with_value():
        return line
    if option in FILES:
        return f"{line} -r -F"
    if option in FOLDERS:
        return f"{line} -x -a '(__fish_complete_directories)'"
    if option in RUNS:
        return f"{line} -x -a '(__florhook_runs)'"
    return f"{line} -x -a '{' '.join(WORDS.get(option, ()))}'"


# In all three: `command` is the first word that is no option of ours and no value of one.

BASH = """\
_florhook() {
    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
    local at=1 command= home= words=
    while ((at < COMP_CWORD)); do
        case ${COMP_WORDS[at]} in
        --home) home=${COMP_WORDS[at+1]}; ((at++));;
        @WITH_VALUE@) ((at++));;
        -m|-c) command=program; break;;
        -*) ;;
        *) command=${COMP_WORDS[at]}; break;;
        esac
        ((at++))
    done
    COMPREPLY=()
    if [[ -n $command && " @SUBCOMMANDS@ " != *" $command "* ]]; then
        compopt -o default
        return
    fi
    case $before in
    @FILES@) compopt -o default; return;;
    @FOLDERS@) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$current"); return;;
    @RUNS@) _florhook_runs; return;;
    @WITH_VALUE@)
        case $before in
@WORD_CASES@
        esac
        _florhook_words "$words"
        return;;
    esac
    if [[ -z $command && $current == -* ]]; then
        _florhook_words '@OPTIONS@'
    elif [[ -z $command ]]; then
        _florhook_words '@SUBCOMMANDS@'
        _florhook_programs
    elif [[ $current == -* ]]; then
        case $command in
@OPTION_CASES@
        esac
        _florhook_words "$words"
    else
        case $command in
        @TAKE_RUNS@) _florhook_runs;;
        doctor) _florhook_programs;;
        completion) _florhook_words 'bash zsh fish';;
        esac
    fi
}

_florhook_words() {
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$current")
}

_florhook_runs() {
    _florhook_words "$("${COMP_WORDS[0]}" ${home:+--home "$home"} completion runs 2>/dev/null)"
}

_florhook_programs() {
    local found
    compopt -o filenames
    mapfile -t found < <(compgen -f -X '!*.py' -- "$current"; compgen -d -- "$current")
    COMPREPLY+=("${found[@]}")
}

complete -F _florhook florhook
"""

ZSH = """\
#compdef florhook
_florhook() {
    local current=${words[CURRENT]} before=${words[CURRENT-1]}
    local command= home= choice=
    local -i at=2
    while ((at < CURRENT)); do
        case ${words[at]} in
        (--home) home=${words[at+1]}; at+=1;;
        (@WITH_VALUE@) at+=1;;
        (-m|-c) command=program; break;;
        (-*) ;;
        (*) command=${words[at]}; break;;
        esac
        at+=1
    done
    if [[ -n $command && " @SUBCOMMANDS@ " != *" $command "* ]]; then
        _files
        return
    fi
    case $before in
    (@FILES@) _files; return;;
    (@FOLDERS@) _files -/; return;;
    (@RUNS@) _florhook_runs; return;;
    (@WITH_VALUE@) _florhook_values $before; return;;
    esac
    if [[ -z $command && $current == -* ]]; then
        compadd -- @OPTIONS@
    elif [[ -z $command ]]; then
        compadd -- @SUBCOMMANDS@
        _files -g '*.py'
    elif [[ $current == -* ]]; then
        _florhook_options $command
    else
        case $command in
        (@TAKE_RUNS@) _florhook_runs;;
        (doctor) _files -g '*.py';;
        (completion) compadd -- bash zsh fish;;
        esac
    fi
}

_florhook_values() {
    local words=
    case $1 in
@WORD_CASES@
    esac
    compadd -- ${=words}
}

_florhook_options() {
    local words=
    case $1 in
@OPTION_CASES@
    esac
    compadd -- ${=words}
}

_florhook_runs() {
    compadd -V runs -- ${(f)"$(${words[1]} ${home:+--home} ${home:+$home} completion runs 2>/dev/null)"}
}

if [[ ${funcstack[1]} == _florhook ]]; then  # a file of that name on fpath is run as the function at first
    _florhook "$@"
else
    compdef _florhook florhook
fi
"""

FISH = """\
function __florhook_command
    set -l skip no
    for word in (commandline -opc)[2..-1]
        if test $skip = yes
            set skip no
            continue
        end
        switch $word
            case -m -c
                echo program
                return
            case '-*'
                string match -qr '^(@WITH_VALUE@)$' -- $word; and set skip yes
            case '*'
                echo $word
                return
        end
    end
end

function __florhook_first
    test -z (__florhook_command | string collect)
end

function __florhook_in
    contains -- (__florhook_command | string collect) $argv
end

function __florhook_no_subcommand
    not contains -- (__florhook_command | string collect) @SUBCOMMANDS@
end

function __florhook_runs
    set -l words (commandline -opc)
    set -l home
    if set -l at (contains -i -- --home $words); and test $at -lt (count $words)
        set home --home $words[(math $at + 1)]
    end
    $words[1] $home completion runs 2>/dev/null
end

complete -c florhook -f
complete -c florhook -n __florhook_first -k -a '(__fish_complete_suffix .py)'
complete -c florhook -n 'not __florhook_first; and __florhook_no_subcommand' -F
complete -c florhook -n '__florhook_in (string split "|" "@TAKE_RUNS@")' -k -a '(__florhook_runs)'
complete -c florhook -n '__florhook_in doctor' -a '(__fish_complete_suffix .py)'
complete -c florhook -n '__florhook_in completion' -a 'bash zsh fish'
@FISH_LINES@
"""
