#!/bin/sh
# Gets what the end-to-end tests and `make stack` need besides .venv: PostgreSQL's server, and the
# jars of Kafka, Kafka Connect and Debezium (from cdc_assets_tests/e2e/pom.xml into .jars beside it).
#
# Safe to run again and again. On Debian or Ubuntu as root, PostgreSQL and Maven come from apt-get
# where they are missing; anywhere else it says in one line what to install, and exits 1.
set -eu
cd "$(dirname "$0")/.."

BED=cdc_assets_tests/e2e

say() { printf 'e2e: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }
may_apt() { [ "$(id -u)" = 0 ] && have apt-get; }

apt_updated=
apt_install() {
    say "installing $* (apt-get, as root)"
    if [ -z "$apt_updated" ]; then
        apt-get update -qq >&2 || say "apt-get update failed, going on with the lists that are there"
        apt_updated=yes
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

# Debian keeps the server's programs off PATH.
have_postgres() { have initdb || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; }

ensure_postgres() {
    if have_postgres; then return 0; fi
    if may_apt && apt_install postgresql && have_postgres; then return 0; fi
    die "PostgreSQL's server (initdb, postgres; 14 or newer) is missing: install it, on Debian the package postgresql"
}

ensure_maven() {
    if have mvn; then return 0; fi
    if may_apt && apt_install maven && have mvn; then return 0; fi
    die "Maven (mvn) is missing, which gets the jars of Kafka and Debezium: install it, on Debian the package maven"
}

# A repository of its own: Maven leaves descriptions without their jars in the user's one, and
# Spark's spark.jars.packages, which looks there first, stumbles over them.
ensure_jars() {
    wanted=$(cksum <"$BED/pom.xml")
    if [ -f "$BED/.jars/.made" ] && [ "$(cat "$BED/.jars/.made")" = "$wanted" ]; then return 0; fi
    ensure_maven
    say "getting the jars of Kafka, Kafka Connect and Debezium (60 MB)"
    rm -rf "$BED/.jars"
    mvn -q -B -f "$BED/pom.xml" "-Dmaven.repo.local=$PWD/$BED/.m2" \
        dependency:copy-dependencies "-DoutputDirectory=$PWD/$BED/.jars" >&2 ||
        die "Maven could not get the jars of $BED/pom.xml: see above"
    rm -rf "$BED/.m2"
    echo "$wanted" >"$BED/.jars/.made"
}

ensure_postgres
ensure_jars
