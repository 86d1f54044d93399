/* A library with Go's note, which does what Go's runtime does when it is loaded: it maps memory through the C
 * library, blocks all signals by its own instruction, makes a call with an address in its mapping and asks where
 * its stack lies. The program that loads it also maps memory, which is managed. */
#include "out.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sys/syscall.h>

#ifndef PROGRAM
static long bare(long number, long a, long b, long c, long d) {
    long answer;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return answer;
}

__asm__(".pushsection .note.go.buildid,\"a\",@note\n"
        ".balign 4\n.long 4, 4, 4\n.asciz \"Go\\0\"\n.long 1\n"
        ".popsection");

__attribute__((constructor)) static void begin(void) {
    char *at = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    memcpy(at, "of the library\n", 15);
    /* The old mask is written there, and the new one contains all signals. */
    unsigned long all = ~0ul;
    CHECK(bare(SYS_rt_sigprocmask, 2, (long)&all, (long)(at + 4096), 8) == 0);
    CHECK(bare(SYS_write, 1, (long)at, 15, 0) == 15);
    /* For the first thread the C library reads this from the list of mappings. */
    pthread_attr_t attributes;
    CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
    CHECK(bare(SYS_rt_sigprocmask, 2, (long)(at + 4096), 0, 8) == 0);
    pthread_attr_destroy(&attributes);
    /* It stays: nothing pages it out. */
    madvise(at, MIB, MADV_PAGEOUT);
}
#else
int main(int count, char **arguments) {
    CHECK(count == 2);
    char *before = map(MIB);
    fill(before, MIB, 1);
    if (!dlopen(arguments[1], RTLD_NOW)) fprintf(stderr, "%s\n", dlerror());
    char *after = map(MIB);
    fill(after, MIB, 2);
    /* The program's mappings are still managed after the library has been loaded. */
    push_out(before, MIB);
    push_out(after, MIB);
    printf("%d %d\n", is_in(before), is_in(after));
    verify(before, MIB, 1);
    verify(after, MIB, 2);
    return 0;
}
#endif
