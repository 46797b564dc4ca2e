#!/usr/bin/env bash
# A numeric interpreter in bash and awk: it asks a function at 13 points, fits a straight line by least squares and
# answers with it. Lines of JSON go to stdout, lines of JSON come back on stdin; see docs/how-to/commands.md.
set -eu

points="-120 -100 -80 -60 -40 -20 0 20 40 60 80 100 120"

read -r task # {"protocol": "vesalius-function/1", "category": "numeric", "budget": 20, ...}
case $task in
*'"category": "numeric"'*) ;;
*) echo "this interpreter is for numeric functions" >&2 && exit 1 ;;
esac

echo "{\"query\": [${points// /, }]}"
read -r reply # {"values": [1.5, null, ...], "errors": [...], "asked": 13, "left": 7}

printf '%s\n' "$reply" | awk -v points="$points" '
{
    if (!match($0, /"values": \[[^]]*\]/)) { print "no values: " $0 > "/dev/stderr"; exit 1 }
    n = split(substr($0, RSTART + 11, RLENGTH - 12), y, ", ")
    split(points, x, " ")
    for (i = 1; i <= n; i++) {
        if (y[i] !~ /^-?[0-9.]+([eE][-+]?[0-9]+)?$/) continue   # null, or a text such as "nan"
        k++; sx += x[i]; sy += y[i]; sxx += x[i] * x[i]; sxy += x[i] * y[i]
    }
    slope = k > 1 ? (k * sxy - sx * sy) / (k * sxx - sx * sx) : 0
    base = k ? (sy - slope * sx) / k : 0
    line = sprintf("%.10g * x + %.10g", slope, base)
    printf "{\"answer\": {\"description\": \"a straight line: %s\", \"code\": \"def f(x):\\n    return %s\\n\"}}\n", line, line
}'
