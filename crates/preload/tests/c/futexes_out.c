/* Operations on futexes whose words are absent: those that wait and wake, and those for which the kernel changes a
 * word under its own locks. */
#include "out.h"
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>

static uint32_t *first, *second;

static void both(uint32_t one, uint32_t other) {
    *first = one, *second = other;
    push_out(first, PAGE);
    push_out(second, PAGE);
    press();
}

static void says(const char *what, long answer) {
    printf("%s: %ld, errno %d, words %s %u\n", what, answer, answer < 0 ? errno : 0,
           *first == 0 ? "free" : *first == (uint32_t)getpid() ? "mine" : "other", *second);
    fflush(stdout);
}

static long with(int operation, long value, void *fourth, uint32_t *other, long sixth) {
    return syscall(SYS_futex, first, operation | FUTEX_PRIVATE_FLAG, value, fourth, other, sixth);
}

int main(void) {
    struct timespec soon = {0, 1000000};
    first = (uint32_t *)block(PAGE), second = (uint32_t *)block(PAGE);
    both(0, 1);
    says("lock", with(FUTEX_LOCK_PI, 0, NULL, NULL, 0));
    both(*first, 2);
    says("lock again", with(FUTEX_LOCK_PI, 0, NULL, NULL, 0));
    both(*first, 3);
    says("unlock", with(FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    both(0, 4);
    says("try", with(FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0));
    both(*first, 5);
    says("unlock", with(FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    both(9, 6);
    says("wake and add", with(FUTEX_WAKE_OP, 1, (void *)1, second, (long)FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 6)));
    both(7, 7);
    says("requeue", with(FUTEX_CMP_REQUEUE, 1, (void *)1, second, 7));
    both(7, 8);
    says("wait", with(FUTEX_WAIT, 7, &soon, NULL, 0));
    says("nowhere", syscall(SYS_futex, 16l, FUTEX_LOCK_PI | FUTEX_PRIVATE_FLAG, 0l, NULL, NULL, 0l));
    return 0;
}
