/* A buffer of 1 MiB is registered with io_uring, so the kernel uses its pages until the buffer is unregistered.
 * Formerly these pages were chosen as victims again and again, and the rest of the program starved. The program
 * makes the bare system calls, since io_uring's library may be missing. If the kernel refuses the calls, the
 * program continues without them. */
#include "check.h"
#include "words.h"
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <sys/uio.h>

int main(void) {
    struct io_uring_params parameters = {0};
    int ring = syscall(SYS_io_uring_setup, 8, &parameters);
    char *buffer = aligned_alloc(PAGE, MIB);
    CHECK(buffer != NULL);
    put_words(buffer, MIB, 3);
    struct iovec range = {buffer, MIB};
    if (ring < 0)
        printf("no io_uring here: %d\n", errno);
    else if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &range, 1))
        printf("the buffer is refused: %d\n", errno);
    for (int round = 0; round < 3; round++) {
        char *at = malloc(60 * MIB);
        put_words(at, 60 * MIB, round);
        CHECK(wrong_words(at, 60 * MIB, round) == 0);
        CHECK(wrong_words(buffer, MIB, 3) == 0);
        free(at);
    }
    /* Once it is unregistered, the buffer is ordinary memory. */
    if (ring >= 0) {
        syscall(SYS_io_uring_register, ring, IORING_UNREGISTER_BUFFERS, NULL, 0);
        CHECK(close(ring) == 0);
    }
    press();
    CHECK(wrong_words(buffer, MIB, 3) == 0);
    return 0;
}
