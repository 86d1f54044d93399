/* The last thread ends by the bare system call. Without the library the process ends with it. (Kernels differ in
 * whether the process then has the status of the last thread or of the first; here both are the same.)
 *
 * Formerly the process stayed forever and was deaf to SIGTERM, because the library's own threads remained. We
 * found this with the kernel's strict seccomp mode, in which that call is the only way to end. The argument
 * "alone" is for a single-threaded program, "strict" for such a program in that mode, and "several" for a program
 * whose first thread ends before another, which still works. */
#define _GNU_SOURCE
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BYTES (64u << 20)
#define STATUS 7

static unsigned *words;

static void fill(void)
{
	words = malloc(BYTES);
	if (!words)
		_exit(1);
	for (size_t i = 0; i < BYTES / sizeof *words; i++)
		words[i] = (unsigned)i * 2654435761u;
}

static void look(void)
{
	size_t wrong = 0;

	for (size_t i = 0; i < BYTES / sizeof *words; i++)
		wrong += words[i] != (unsigned)i * 2654435761u;
	if (write(1, wrong ? "wrong\n" : "right\n", 6) != 6)
		abort();
}

static void *work(void *nothing)
{
	look();
	syscall(SYS_exit, STATUS);
	return nothing;
}

int main(int count, char **arguments)
{
	const char *form = count > 1 ? arguments[1] : "alone";
	pthread_t thread;

	fill();
	if (!strcmp(form, "several")) {
		if (pthread_create(&thread, NULL, work, NULL))
			return 2;
		syscall(SYS_exit, STATUS);
	}
	if (!strcmp(form, "strict") && prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
		return 3;
	look();
	syscall(SYS_exit, STATUS);
}
