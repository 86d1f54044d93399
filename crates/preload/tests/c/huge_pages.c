/* Prints each mapping of 2 MiB or more that the kernel may choose to back with huge pages: unnamed memory whose
 * owner has neither requested nor declined them. Under the library there must be none, since all program memory
 * this long is managed, and the rest is the library's. */
#include "check.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HUGE_PAGE = 2 << 20, BLOCK = 48 << 20 };

static void *use(void *block)
{
    memset(block, 7, BLOCK);
    return block;
}

/* Prints one mapping, unless it is closed, shared, a file's or the stack, or its flags settle the question. */
static void judge(const char *mapping, const char *flags)
{
    unsigned long start, end, inode;
    char rights[5], name[256] = "";
    CHECK(sscanf(mapping, "%lx-%lx %4s %*x %*s %lu %255s", &start, &end, rights, &inode, name) >= 4);
    if (end - start < HUGE_PAGE || rights[1] != 'w' || rights[3] != 'p' || inode || name[0])
        return;
    if (!strstr(flags, " nh") && !strstr(flags, " hg"))
        printf("%s may have huge pages by the machine's setting\n", mapping);
}

int main(void)
{
    /* More than the budget, so that every part of the library has worked; a thread for whatever exists per thread. */
    pthread_t thread;
    void *block = malloc(BLOCK), *joined;
    CHECK(block);
    CHECK(pthread_create(&thread, NULL, use, block) == 0);
    CHECK(pthread_join(thread, &joined) == 0 && joined == block);

    FILE *smaps = fopen("/proc/self/smaps", "r");
    CHECK(smaps);
    char line[512], mapping[512] = "";
    while (fgets(line, sizeof line, smaps)) {
        line[strcspn(line, "\n")] = 0;
        /* A field's name starts with a capital letter, an address does not. */
        if (line[0] < 'A' || line[0] > 'Z')
            strcpy(mapping, line);
        else if (!strncmp(line, "VmFlags:", 8))
            judge(mapping, line);
    }
    fclose(smaps);
    printf("looked at all mappings: %d\n", ((char *)block)[BLOCK - 1]);
    free(block);
    return 0;
}
