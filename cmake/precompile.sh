#!/bin/sh
# Compiler launcher for precompiled headers. Removes the header that an earlier build wrote before
# it runs the command: ccache would read that file instead of the changed headers.
output=
previous=
for argument in "$@"; do
  if [ "$previous" = -o ]; then output=$argument; fi
  previous=$argument
done
case $output in *.gch) rm -f "$output" ;; esac
exec "$@"
