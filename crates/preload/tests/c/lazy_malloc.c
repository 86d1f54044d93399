/* Memory that the allocator frees lazily is zero where the allocator promises zeros, with memory pressure and
 * without. Adjacent blocks in use keep their contents. */
#include "check.h"
#include <pthread.h>

/* This is jemalloc's control function; the library exports it under this name too. */
extern int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));

static void give_back(void) {
    CHECK(mallctl != NULL && mallctl("arena.4096.purge", NULL, NULL, NULL, 0) == 0);
}
static void zeros(const char *at, size_t len) {
    const uint64_t *word = (const uint64_t *)at;
    for (size_t n = 0; n < len / sizeof *word; n++) CHECK(word[n] == 0);
}
static char *block(size_t len) {
    void *at;
    CHECK(posix_memalign(&at, PAGE, len) == 0);
    return at;
}

static const size_t LEN[] = {16384, 20480, 65536, 69632, 262144, MIB, 9 * MIB};
/* These sizes lie between those of LEN. */
#define KEPT(l) (LEN[l] / PAGE % 256 * PAGE + PAGE)
enum { LENS = sizeof LEN / sizeof *LEN, EACH = 4 };

static void used_again(int pressed) {
    char *freed[LENS][EACH], *kept[LENS][EACH];
    for (int l = 0; l < LENS; l++)
        for (int n = 0; n < EACH; n++) {
            fill(freed[l][n] = block(LEN[l]), LEN[l], 1000 * l + n);
            fill(kept[l][n] = block(KEPT(l)), KEPT(l), 7 * l + n);
        }
    for (int l = 0; l < LENS; l++)
        for (int n = 0; n < EACH; n++) free(freed[l][n]);
    give_back();
    if (pressed) press();
    for (int l = 0; l < LENS; l++)
        for (int n = 0; n < EACH; n++) {
            char *at = calloc(1, LEN[l]);
            CHECK(at != NULL);
            zeros(at, LEN[l]);
            /* Only part is used, so that the rest is still free when memory is short. */
            if (n % 2) memset(at + LEN[l] / 2, 1, 64);
            freed[l][n] = at;
        }
    if (pressed) press();
    for (int l = 0; l < LENS; l++)
        for (int n = 0; n < EACH; n++) {
            char *at = freed[l][n];
            const size_t half = LEN[l] / 2;
            for (size_t b = 0; n % 2 && b < 64; b++) CHECK(at[half + b] == 1);
            if (n % 2) memset(at + half, 0, 64);
            zeros(at, LEN[l]);
            free(at);
            verify(kept[l][n], KEPT(l), 7 * l + n);
            free(kept[l][n]);
        }
}

/* A program may free memory that it has made unwritable. In that case the memory must not be cleared. */
static void protected_when_freed(void) {
    char *at = block(4 * MIB);
    /* The compiler does not know that the pointers are the same. */
    const volatile uintptr_t same = (uintptr_t)at;
    fill(at, 4 * MIB, 3);
    CHECK(mprotect(at + MIB, MIB, PROT_READ) == 0 && mprotect(at + 3 * MIB, PAGE, PROT_NONE) == 0);
    free(at);
    give_back();
    CHECK(mprotect((char *)same + MIB, MIB, PROT_READ | PROT_WRITE) == 0);
    CHECK(mprotect((char *)same + 3 * MIB, PAGE, PROT_READ | PROT_WRITE) == 0);
    at = calloc(1, 4 * MIB);
    zeros(at, 4 * MIB);
    free(at);
}

/* A stack stays in memory, but is zero once it has been freed. */
static void *stand(void *argument) { return argument; }
static void was_a_stack(void) {
    char *at = block(MIB);
    memset(at, 5, MIB);
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, at, MIB) == 0);
    CHECK(pthread_create(&thread, &attributes, stand, NULL) == 0 && pthread_join(thread, NULL) == 0);
    free(at);
    give_back();
    press();
    for (int n = 0; n < 8; n++) {
        at = calloc(1, MIB);
        zeros(at, MIB);
    }
}

static void *churn(void *seed) {
    uint64_t random = (uintptr_t)seed * 2654435761u + 1;
    for (int n = 0; n < 3000; n++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const size_t len = (1 + (random >> 33) % 64) * PAGE;
        char *at = random >> 63 ? calloc(1, len) : malloc(len);
        CHECK(at != NULL);
        if (random >> 63) zeros(at, len);
        memset(at, (int)(uintptr_t)seed, len);
        if (n % 64 == 0) give_back();
        for (size_t b = 0; b < len; b += 512) CHECK(at[b] == (char)(uintptr_t)seed);
        free(at);
    }
    return NULL;
}

int main(void) {
    for (int round = 0; round < 4; round++) used_again(round % 2);
    protected_when_freed();
    was_a_stack();
    pthread_t thread[3];
    for (uintptr_t n = 0; n < 3; n++) CHECK(pthread_create(&thread[n], NULL, churn, (void *)(n + 1)) == 0);
    for (int n = 0; n < 4; n++) press();
    for (int n = 0; n < 3; n++) CHECK(pthread_join(thread[n], NULL) == 0);
    used_again(1);
    return 0;
}
