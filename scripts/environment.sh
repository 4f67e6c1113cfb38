# Sourced by the scripts beside it: a virtual environment of its own for each, installed once.

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }

# The first Python of at least 3.10, or the one that PYTHON names.
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

# A line that changes whenever the environment would: what is asked for, by which Python, and where.
fingerprint() {
    "$1" - "$ROOT/pyproject.toml" "$ROOT/constraints.txt" <<'PYTHON'
import hashlib, pathlib, sys
files = [pathlib.Path(name) for name in sys.argv[1:]]
print(hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest(), sys.version.split()[0], files[0])
PYTHON
}

# prepare FOLDER REQUIREMENT: the environment FOLDER with this checkout installed in it (editable, so that a
# change of the code needs no new installation). Does nothing where that has been done already.
prepare() {
    local folder="$ROOT/$1" requirement="$2" python wanted
    python=$(find_python) || return 1
    wanted="$(fingerprint "$python") $requirement"
    if [ -x "$folder/bin/python" ] && [ "$(cat "$folder/installed" 2>/dev/null)" = "$wanted" ]; then
        return 0
    fi
    say "installing into $1 (once; later runs start at once)"
    rm -f "$folder/installed"
    # --clear: an environment half made, or made by another Python or in another place, is made anew.
    if ! "$python" -m venv --clear "$folder"; then
        say "$python can't make a virtual environment. On Debian and Ubuntu: apt-get install python3-venv"
        return 1
    fi
    if ! (cd "$ROOT" && "$folder/bin/python" -m pip install -qq --disable-pip-version-check \
        --constraint constraints.txt --editable "$requirement" </dev/null); then
        say "the installation failed (pip's message is above). It is the one step that needs a package index:" \
            "check the network, or point pip to a mirror (PIP_INDEX_URL) or to a folder of wheels" \
            "(PIP_NO_INDEX=1 PIP_FIND_LINKS=/path), and run $0 again"
        return 1
    fi
    printf '%s\n' "$wanted" >"$folder/installed"
}
