// Makes small objects, and uses some of them at random: objects OBJECTS USES
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 88172645463325252u;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

int main(int count, char **words) {
    if (count != 3)
        return 2;
    size_t objects = strtoul(words[1], NULL, 10), uses = strtoul(words[2], NULL, 10);
    char **made = malloc(objects * sizeof *made);
    for (size_t i = 0; i < objects; i++) {
        made[i] = malloc(128);
        memset(made[i], (int)(i & 0x7f), 128);
        memcpy(made[i], &i, sizeof i);
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < uses; i++) {
        char *one = made[next() % objects];
        uint64_t number;
        memcpy(&number, one, sizeof number);
        sum = sum * 31 + number + (uint64_t)one[127];
        one[64]++;
    }
    printf("%llu\n", (unsigned long long)sum);
}
