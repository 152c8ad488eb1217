#!/bin/sh
# Starts the Chromium of the npm package with what a bare machine lacks: its libraries, and a font.
folder=$(cd "$(dirname "$0")" && pwd)
program=$folder/node_modules/@sparticuz/chromium/bin
export LD_LIBRARY_PATH="$program/lib" FONTCONFIG_FILE="$folder/fontconfig.xml"
exec "$program/chromium" "$@"
