#!/usr/bin/env bash
# Links a program of many files with link-time optimisation, which is the largest process of many builds.
#
#   examples/big_link.sh prepare DIRECTORY                              makes and compiles the sources
#   millpond run --ram 128M -- examples/big_link.sh link DIRECTORY      links them, and runs the program
set -euo pipefail

files=120 functions=40
directory=${2:?usage: examples/big_link.sh prepare|link DIRECTORY}

sources() {
    awk -v files=$files -v functions=$functions -v to="$directory" 'BEGIN {
        for (f = 0; f < files; f++) {
            file = to "/part" f ".c"
            for (n = 0; n < functions; n++) {
                print "unsigned f" f "_" n "(unsigned x) {" > file
                print "    unsigned y = x ^ " (f * 7919 + n * 31) "u;" > file
                print "    for (unsigned i = 0; i < (x & 7u) + 1; i++) y = y * " (2 * n + 3) "u + (y >> " (n % 13 + 3) ") + i;" > file
                print "    switch (y % 5u) { case 0: y += x; break; case 1: y ^= x << 3; break; case 2: y -= x; break; default: y = ~y; }" > file
                print "    return y;\n}" > file
            }
            print "unsigned part" f "(unsigned x) {\n    unsigned y = 0;" > file
            for (n = 0; n < functions; n++) print "    y += f" f "_" n "(x + " n "u);" > file
            print "    return y;\n}" > file
            close(file)
        }
        file = to "/main.c"
        print "#include <stdio.h>" > file
        for (f = 0; f < files; f++) print "unsigned part" f "(unsigned x);" > file
        print "int main(void) {\n    unsigned y = 0;" > file
        for (f = 0; f < files; f++) print "    y = y * 31u + part" f "(y);" > file
        print "    printf(\"%u\\n\", y);\n}" > file
    }'
}

case ${1:-} in
prepare)
    mkdir -p "$directory"
    sources
    (cd "$directory" && printf '%s\n' ./*.c | xargs -P "$(nproc)" -n 20 gcc -O1 -flto -c)
    ;;
link)
    # One part, so that the optimiser is one process which sees the whole program.
    gcc -O1 -flto -flto-partition=none -o "$directory/program" "$directory"/*.o
    "$directory/program"
    ;;
*)
    echo "usage: examples/big_link.sh prepare|link DIRECTORY" >&2
    exit 2
    ;;
esac
