#!/bin/sh
# Makes .peers, an environment of its own with the Spark that has AUTO CDC for history tables, for
# `make bench-peers`. Safe to run again and again. Needs Maven: a catalog whose tables AUTO CDC can
# write is in Spark's own tests alone (of the newest version that Maven's repository has of them).
set -eu
cd "$(dirname "$0")/.."

SPARK=4.3.0
TESTS=4.2.0

say() { printf 'peers: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

if [ -f .peers/.made ] && [ "$(cat .peers/.made)" = "$SPARK $TESTS" ]; then exit 0; fi
if ! command -v mvn >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "installing maven (apt-get, as root)"
        apt-get update -qq >&2 || say "apt-get update failed, going on with the lists that are there"
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends maven >&2
    else
        die "Maven (mvn) is missing, which gets the jar of Spark's tests: install it"
    fi
fi
say "making .peers with PySpark $SPARK (500 MB)"
rm -rf .peers
"$(command -v .venv/bin/python)" -m venv .peers
.peers/bin/pip install --quiet --disable-pip-version-check "pyspark[pipelines]==$SPARK"
jars=$(.peers/bin/python -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__) + "/jars")')
mvn -q -B "-Dmaven.repo.local=$PWD/.peers/m2" \
    org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
    "-Dartifact=org.apache.spark:spark-catalyst_2.13:$TESTS:jar:tests" "-DoutputDirectory=$jars" >&2 ||
    die "Maven could not get the jar of Spark's tests: see above"
rm -rf .peers/m2
echo "$SPARK $TESTS" >.peers/.made
