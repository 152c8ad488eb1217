#!/bin/sh
# Send a message to an agent over HTTP.
#
# LONGSHORE_TOKEN=... sh with_curl.sh AGENT TEXT [KEY]
#
# The token: longshore token add NAME --agent AGENT --role admin --scope send. LONGSHORE_URL is the gateway's address.
# The same KEY is taken once, however often it is sent: use your own name for what happened, such as an order's number.
set -eu

url=${LONGSHORE_URL:-http://127.0.0.1:8400}
if [ $# -lt 2 ] || [ $# -gt 3 ]; then
    echo "usage: sh with_curl.sh AGENT TEXT [KEY]" >&2
    exit 1
fi
if [ -z "${LONGSHORE_TOKEN:-}" ]; then
    echo "set LONGSHORE_TOKEN: longshore token add NAME --agent $1 --role admin --scope send" >&2
    exit 1
fi
key=${3:-order-$(date +%s)-$$}

# As JSON: quotes, backslashes and line ends are written as it wants them; other control characters are left out.
json() {
    printf '%s' "$1" | tr -d '\000-\010\013-\037' | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/	/\\t/g' |
        awk 'NR > 1 { printf "\\n" } { printf "%s", $0 }'
}

# By way of standard input, where other users of this machine do not see the token as they see arguments.
answer=$(
    printf 'header = "Authorization: Bearer %s"\n' "$LONGSHORE_TOKEN" |
        curl --config - --silent --show-error --max-time 30 --retry 3 --retry-connrefused \
            --header "Content-Type: application/json" --header "Idempotency-Key: $key" \
            --data-binary "{\"agent_group\": \"$(json "$1")\", \"text\": \"$(json "$2")\"}" \
            --write-out '\n%{http_code}' "$url/v1/messages"
) || {
    echo "no answer from $url: send it again with the key $key" >&2
    exit 1
}

# 202 {"id": ...}: stored. Everything else is told as {"title": ..., "detail": ...}.
body=${answer%
*}
case $answer in
*202) echo "stored as $(printf '%s' "$body" | sed 's/.*"id": *"\([^"]*\)".*/\1/'), key $key" ;;
*)
    echo "refused: $body" >&2
    exit 1
    ;;
esac
