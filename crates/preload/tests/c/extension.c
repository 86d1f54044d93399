/* The library that deep_bound.c loads. */
#include <stdlib.h>

void take(void *block) { free(block); }

void *give(void) { return malloc(100); }
