#!/bin/sh
# Gets what the tests of Dagster's pages need besides .venv: Chromium. Playwright would download a
# browser of its own; the system's serves as well.
#
# Safe to run again and again. On Debian as root it comes from apt-get where it is missing; anywhere
# else it says in one line what to install, and exits 1.
set -eu

say() { printf 'ui: %s\n' "$*" >&2; }
have_browser() { command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1; }

if have_browser; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "installing chromium (apt-get, as root)"
    apt-get update -qq >&2 || say "apt-get update failed, going on with the lists that are there"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >&2 || true
    if have_browser; then exit 0; fi
fi
say "Chromium is missing: install chromium or google-chrome, on Debian the package chromium"
exit 1
