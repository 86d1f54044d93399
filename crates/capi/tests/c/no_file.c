/* A pond with the default store, or with a named one, works even if no file can be made: it keeps data that
 * compresses. */
#include "check.h"

int main(int argc, char **argv) {
    struct millpond_options options = {.size = sizeof options, .ram = 16 * MIB, .store = argc > 1 ? argv[1] : NULL};
    millpond *pond = NULL;
    CHECK(millpond_open(&options, &pond) == 0);
    millpond_region *region = small_region(pond, 32 * MIB);
    unsigned char *bytes = millpond_region_data(region);
    memset(bytes, 7, 32 * MIB);
    for (size_t i = 0; i < 32 * MIB; i++)
        CHECK(bytes[i] == 7);
    millpond_region_free(region);
    millpond_close(pond);
    return 0;
}
