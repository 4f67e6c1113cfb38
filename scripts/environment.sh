# Sourced by the other scripts: creates a virtual environment and installs the package in it.

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }

# Print the path of a Python that is 3.10 or newer. $PYTHON, if set, is the only candidate.
find_python() {
    local candidate candidates=(python3 python3.13 python3.12 python3.11 python3.10 python)
    if [ -n "${PYTHON:-}" ]; then
        candidates=("$PYTHON")
    fi
    for candidate in "${candidates[@]}"; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then
            command -v "$candidate"
            return
        fi
    done
    if [ -n "${PYTHON:-}" ]; then
        say "PYTHON=$PYTHON is not a Python of version 3.10 or newer"
    else
        say "no Python of version 3.10 or newer was found. Install one, or name it: PYTHON=/path/to/python $0"
    fi
    return 1
}

# Print a line that changes when the environment must be installed again: requirements, Python version, folder.
fingerprint() {
    "$1" - "$ROOT/pyproject.toml" "$ROOT/constraints.txt" <<'PYTHON'
import hashlib, pathlib, sys
files = [pathlib.Path(name) for name in sys.argv[1:]]
print(hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest(), sys.version.split()[0], files[0])
PYTHON
}

# prepare FOLDER REQUIREMENT: create the virtual environment FOLDER with this checkout installed in it, unless it
# is up to date. The installation is editable: a change of the code needs no new installation.
prepare() {
    local folder="$ROOT/$1" requirement="$2" python wanted
    python=$(find_python) || return 1
    wanted="$(fingerprint "$python") $requirement"
    if [ -x "$folder/bin/python" ] && [ "$(cat "$folder/installed" 2>/dev/null)" = "$wanted" ]; then
        return 0
    fi
    say "installing into $1 (only in the first run)"
    rm -f "$folder/installed"
    # --clear replaces an environment that is incomplete, or that another Python or another folder was used for.
    if ! "$python" -m venv --clear "$folder"; then
        say "$python can't create a virtual environment. On Debian and Ubuntu: apt-get install python3-venv"
        return 1
    fi
    if ! (cd "$ROOT" && "$folder/bin/python" -m pip install -qq --disable-pip-version-check \
        --constraint constraints.txt --editable "$requirement" </dev/null); then
        say "the installation failed (see pip's message above). Only this step needs a package index:" \
            "check the network, or point pip to a mirror (PIP_INDEX_URL) or to a folder of wheels" \
            "(PIP_NO_INDEX=1 PIP_FIND_LINKS=/path), then run $0 again"
        return 1
    fi
    printf '%s\n' "$wanted" >"$folder/installed"
}
