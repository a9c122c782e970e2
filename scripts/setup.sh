#!/bin/sh
# Makes .venv from requirements.lock and sees that there is a Java for Spark.
#
# Safe to run again and again: it does nothing where nothing has changed. What is missing is
# installed only into this folder, except on Debian or Ubuntu as root, where Java (and what
# Python needs to make a virtual environment) comes from apt-get. Anywhere else it says in one
# line what to install, and exits 1.
#
#   PYTHON=3.12 scripts/setup.sh     another Python than the first one found (3.10 or newer)
#   UV=/path/to/uv scripts/setup.sh  another uv
set -eu
cd "$(dirname "$0")/.."

# As cdc_assets/cdc/java.py has it.
MIN_JAVA=17
MAX_JAVA=22
PYTHON=${PYTHON:-}
UV=${UV:-}
STAMP=.venv/.cdc-setup

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# --- packages of the system ------------------------------------------------------------------

may_apt() { [ "$(id -u)" = 0 ] && have apt-get; }

apt_updated=
apt_update() {
    [ -z "$apt_updated" ] || return 0
    apt-get update -qq >&2 || say "apt-get update failed, going on with the lists that are there"
    apt_updated=yes
}

apt_install() {
    say "installing $* (apt-get, as root)"
    apt_update
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

# --- Java ------------------------------------------------------------------------------------

# The major version of a java command, 0 where it does not run: 17 of "17.0.15", 8 of "1.8.0_392".
java_major() {
    version=$("$1" -version 2>&1 </dev/null |
        sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1) || version=
    echo "${version:-0}"
}

fits() {
    major=$(java_major "$1")
    [ "$major" -ge "$MIN_JAVA" ] && [ "$major" -le "$MAX_JAVA" ]
}

# As the product looks for it: JAVA_HOME where it is set, else java on PATH, else one that fits and
# is installed beside that.
find_java() {
    if [ -n "${JAVA_HOME:-}" ]; then
        fits "$JAVA_HOME/bin/java"
        return
    fi
    if have java && fits java; then return 0; fi
    for home in /usr/lib/jvm/* /usr/java/* /opt/java/* \
        /Library/Java/JavaVirtualMachines/*/Contents/Home; do
        if [ -x "$home/bin/java" ] && fits "$home/bin/java"; then
            say "the java in PATH does not fit, Spark runs on $home"
            return 0
        fi
    done
    return 1
}

install_java() {
    apt_update
    for package in openjdk-17-jre-headless openjdk-21-jre-headless; do
        apt-cache show "$package" >/dev/null 2>&1 || continue
        apt_install "$package" || continue
        if find_java; then return 0; fi
    done
    return 1
}

ensure_java() {
    if find_java; then return 0; fi
    if [ -n "${JAVA_HOME:-}" ]; then
        die "JAVA_HOME ($JAVA_HOME) holds no Java $MIN_JAVA to $MAX_JAVA, which Spark needs: point it to one, or unset it"
    fi
    if may_apt && install_java; then return 0; fi
    die "Spark needs Java $MIN_JAVA to $MAX_JAVA and there is none: install a JRE (OpenJDK 17 or 21), or set JAVA_HOME"
}

# --- uv --------------------------------------------------------------------------------------

works() { [ -n "$1" ] && "$1" --version >/dev/null 2>&1; }

find_uv() {
    for candidate in "$UV" uv .uv-venv/bin/uv "${HOME:-/}/.local/bin/uv"; do
        if works "$candidate"; then
            UV=$candidate
            return 0
        fi
    done
    return 1
}

# An environment of its own, so that no Python of the system or the user is changed (PEP 668).
bootstrap_uv() {
    rm -rf .uv-venv
    python3 -m venv .uv-venv >/dev/null 2>&1 &&
        .uv-venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
            --only-binary :all: -r scripts/uv.lock.txt >&2
}

ensure_uv() {
    if find_uv; then return 0; fi
    if ! have python3; then
        may_apt || die "there is no python3: install Python 3.10 or newer"
        apt_install python3 python3-venv || die "apt-get could not install python3"
    fi
    say "uv is not there, installing it into .uv-venv"
    if ! python3 -c 'import ensurepip, venv' >/dev/null 2>&1; then
        may_apt || die "python3 can make no virtual environment: install python3-venv, or uv"
        apt_install python3-venv || die "apt-get could not install python3-venv"
    fi
    bootstrap_uv || die "could not install uv into .uv-venv: install uv by hand and run this again"
    find_uv || die ".uv-venv has no uv that runs: install uv by hand and run this again"
}

# --- .venv -----------------------------------------------------------------------------------

# The environment is that of these files, in this folder (a virtual environment cannot be moved).
fingerprint() {
    { echo "$PYTHON"; pwd -P; cksum requirements.lock pyproject.toml scripts/setup.sh scripts/uv.lock.txt; }
}

up_to_date() {
    [ -f "$STAMP" ] && [ -x .venv/bin/python ] && [ "$(cat "$STAMP")" = "$(fingerprint)" ] &&
        .venv/bin/python -c '' >/dev/null 2>&1
}

# Java's archive of Spark's classes: every session then starts in half the time. Without it all works.
warm_up() {
    say "making Java's archive of Spark's classes (a minute)"
    .venv/bin/python -m cdc_assets.warm >.venv/warm.log 2>&1 ||
        say "no archive was made, Spark will start slower: see .venv/warm.log"
}

make_venv() {
    ensure_uv
    say "making .venv (a few minutes the first time: Spark is large)"
    rm -rf .venv
    "$UV" venv --quiet --python "${PYTHON:->=3.10}" .venv ||
        die "uv found no Python ${PYTHON:-3.10 or newer}: install one, or name it: PYTHON=/path/to/python3"
    # Compiled now: where Python may not write bytecode, each command would compile it all anew.
    "$UV" pip sync --quiet --compile-bytecode --python .venv/bin/python --require-hashes \
        requirements.lock ||
        die "the packages of requirements.lock could not be installed: see above"
    # The lock file pins what builds this project (hatchling) too: nothing more is fetched.
    "$UV" pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation \
        --editable . || die "the project itself could not be installed: see above"
    warm_up
    fingerprint >"$STAMP"
    say "done: $(.venv/bin/python --version) in .venv"
}

# A Python that was asked for once stays until another one is.
if [ -z "$PYTHON" ] && [ -f "$STAMP" ]; then PYTHON=$(head -n 1 "$STAMP"); fi

ensure_java
up_to_date || make_venv
