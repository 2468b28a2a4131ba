/* A line of a program, and what is printed of it. */
#ifndef LINE_H
#define LINE_H

#include <stdio.h>
#include <stdlib.h>

static int line;
static char *words; /* of the line, which are left */

static long next(void)
{
    return strtol(words, &words, 10);
}

static void report(const char *what, long long value)
{
    printf("%d %s %lld\n", line, what, value < 0 ? -1 : value);
}
#endif
