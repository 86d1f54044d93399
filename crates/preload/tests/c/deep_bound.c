/* A library loaded with RTLD_DEEPBIND frees memory that the program allocated, and vice versa. PHP loads its
 * extensions this way, and formerly died at startup, because `free` was the C library's in such a library. The
 * loaded library is extension.c, newly built, and found by the caller's $ORIGIN: a wrapper that calls dlopen would
 * have another $ORIGIN. */
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>

int main(int count, char **names) {
    CHECK(count == 2);
    for (int own_lookup = 0; own_lookup < 2; own_lookup++) {
        void *library = dlopen(own_lookup ? "extension.so" : names[1], RTLD_NOW | RTLD_DEEPBIND);
        CHECK(library);
        void (*take)(void *) = (void (*)(void *))dlsym(library, "take");
        void *(*give)(void) = (void *(*)(void))dlsym(library, "give");
        CHECK(take && give);
        free(give());
        take(malloc(100));
    }
    return 0;
}
