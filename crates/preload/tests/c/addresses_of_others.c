/* Two programs that use their own addresses near the space. Under direct delivery the filter outlives `execve`.
 *
 * Chromium's allocator asks for memory at 0x21b000000000 when the dynamic linker first calls it, before any
 * constructor. In a program started by a managed one, the filter stopped that call when no handler of ours was
 * installed yet: SIGSYS.
 *
 * clisp maps its heap with MAP_FIXED up to 0x200000000000. It replaced the page through which our calls are made,
 * and the next one ended in SIGSEGV. */
#include "check.h"
#include <sys/syscall.h>

#define HINT 0x21b000000000ul
#define HEAP 0x1fffffee6000ul
#define HEAP_LEN (0x200000000000ul - HEAP)

static void *by_function, *by_number;

static void early(void)
{
    by_function = mmap((void *)HINT, 32 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    by_number = (void *)syscall(SYS_mmap, HINT, 32 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
}
__attribute__((section(".preinit_array"), used)) static void (*first)(void) = early;

int main(int argc, char **argv)
{
    CHECK(by_function != MAP_FAILED && by_number != MAP_FAILED);
    fill(by_function, MIB, 3);
    fill(by_number, MIB, 4);
    char *heap = mmap((void *)HEAP, HEAP_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(heap == (char *)HEAP);
    fill(heap, HEAP_LEN, 5);
    char *memory = map(64 * MIB), *path = map(PAGE);
    fill(memory, 64 * MIB, 6);
    CHECK(getcwd(path, PAGE));
    verify(memory, 64 * MIB, 6);
    verify(heap, HEAP_LEN, 5);
    verify(by_function, MIB, 3);
    verify(by_number, MIB, 4);
    if (argc == 1) {
        execl(argv[0], argv[0], "again", NULL);
        return 2;
    }
    return 0;
}
