#!/bin/sh
# Gets what the end-to-end tests and `make stack` need besides .venv: PostgreSQL's server, the jars of
# Kafka, Kafka Connect and Debezium (from cdc_assets_tests/e2e/pom.xml into .jars beside it), and
# Apicurio's schema registry with its converter for Kafka Connect (into .registry and .converter).
# With the argument `s3` it builds versitygw, a server of S3, into .versitygw, where there is `go`.
#
# Safe to run again and again. On Debian or Ubuntu as root, PostgreSQL and Maven come from apt-get
# where they are missing; anywhere else it says in one line what to install, and exits 1.
set -eu
cd "$(dirname "$0")/.."

BED=cdc_assets_tests/e2e
REGISTRY=3.0.9            # of those that run on Java 17 the newest in Maven's repository
CONVERTER=2.5.11.Final    # the newest that is published with all its jars
VERSITYGW=v1.8.0

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

# An archive of Apicurio's, unpacked into a folder.
unpack() {
    mvn -q -B -f "$BED/pom.xml" "-Dmaven.repo.local=$PWD/$BED/.m2" dependency:unpack \
        "-Dartifact=io.apicurio:$1" "-DoutputDirectory=$PWD/$BED/$2" >&2 ||
        die "Maven could not get io.apicurio:$1: see above"
}

ensure_registry() {
    wanted="$REGISTRY $CONVERTER"
    if [ "$(cat "$BED/.registry/.made" 2>/dev/null)" = "$wanted" ]; then return 0; fi
    ensure_maven
    say "getting the schema registry and its converter (120 MB)"
    rm -rf "$BED/.registry" "$BED/.converter"
    # The parent of the registry's description was never published; nothing in it is needed.
    parent="$BED/.m2/io/apicurio/apicurio-registry/$REGISTRY"
    mkdir -p "$parent"
    cat >"$parent/apicurio-registry-$REGISTRY.pom" <<POM
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>io.apicurio</groupId>
  <artifactId>apicurio-registry</artifactId>
  <version>$REGISTRY</version>
  <packaging>pom</packaging>
</project>
POM
    unpack "apicurio-registry-app:$REGISTRY:tar.gz:all" .registry
    unpack "apicurio-registry-distro-connect-converter:$CONVERTER:tar.gz" .converter/apicurio
    # Kafka Connect finds plugins by lists of services, which this one came before.
    services="$BED/.converter/META-INF/services"
    mkdir -p "$services"
    echo io.apicurio.registry.utils.converter.AvroConverter \
        >"$services/org.apache.kafka.connect.storage.Converter"
    python=$PWD/.venv/bin/python
    (cd "$BED/.converter" && "$python" -m zipfile -c apicurio/services.jar META-INF)
    rm -rf "$BED/.m2" "$BED/target" "$BED/.converter/META-INF"
    echo "$wanted" >"$BED/.registry/.made"
}

ensure_object_store() {
    if [ "$(cat "$BED/.versitygw/.made" 2>/dev/null)" = "$VERSITYGW" ]; then return 0; fi
    rm -rf "$BED/.versitygw"
    have go || die "there is no go, which builds versitygw, a server of S3; install Go"
    say "building versitygw, a server of S3 (some minutes the first time)"
    # Without optimizing it compiles in two thirds of the time.
    GOBIN="$PWD/$BED/.versitygw" go install '-gcflags=all=-N -l' \
        "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW" >&2
    echo "$VERSITYGW" >"$BED/.versitygw/.made"
}

ensure_postgres
ensure_jars
ensure_registry
if [ "${1:-}" = s3 ]; then ensure_object_store; fi
