#!/usr/bin/env -S bash -eu
# Latin-1, as scripts that are older than UTF-8 have it: Grüße.
printf '%s' 'grüße' >/run/latin
