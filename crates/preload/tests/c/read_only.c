/* The program fills memory, makes it read-only and reads it. Formerly read-only memory could not be evicted, so no
 * fault could be served once the budget was full of it: the program never ended and printed nothing. */
#include "check.h"

int main(void) {
    const size_t len = 64 * MIB;
    unsigned char *at = (unsigned char *)map(len);
    for (size_t i = 0; i < len; i++) at[i] = i * 2654435761u >> 13;
    CHECK(mprotect(at, len, PROT_READ) == 0);
    unsigned sum = 0;
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < len; i++) sum += at[i];
    printf("read only %u\n", sum);

    /* The memory is writable again, after part of it was temporarily inaccessible. The data is still there. */
    CHECK(mprotect(at + 8 * MIB, 48 * MIB, PROT_NONE) == 0);
    press();
    CHECK(mprotect(at, len, PROT_READ | PROT_WRITE) == 0);
    for (size_t i = 0; i < len; i++) CHECK(at[i] == (unsigned char)(i * 2654435761u >> 13));
    for (size_t i = 0; i < len; i += PAGE) at[i] = 1;
    sum = 0;
    for (size_t i = 0; i < len; i++) sum += at[i];
    printf("written %u\n", sum);
    return 0;
}
