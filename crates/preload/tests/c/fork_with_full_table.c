/* fork needs no descriptor, so a program may call it with as many descriptors open as allowed.
 *
 * Formerly the child ended with status 71, because its table had no room for its store and its userfaultfd. The
 * library now keeps a few descriptors for that, which the program cannot close. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (64u << 20)
#define LIMIT 1024

static unsigned char *bytes;

static int is_right(void)
{
	size_t i;

	for (i = 0; i < BYTES; i += 512)
		if (bytes[i] != (unsigned char)(i >> 12))
			return 0;
	return 1;
}

int main(void)
{
	struct rlimit limit;
	size_t i;
	int n;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_max < LIMIT)
		return 2;
	limit.rlim_cur = LIMIT;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		return 3;
	bytes = malloc(BYTES);
	if (!bytes)
		return 4;
	for (i = 0; i < BYTES; i++)
		bytes[i] = (unsigned char)(i >> 12);
	while (open("/dev/null", O_RDONLY) >= 0)
		;
	if (errno != EMFILE)
		return 5;
	for (n = 0; n < 3; n++) {
		pid_t child = fork();
		int status;

		if (!child) {
			closefrom(3);
			_exit(is_right() ? 0 : 6);
		}
		if (child < 0 || waitpid(child, &status, 0) != child)
			return 7;
		if (status) {
			printf("child %d: status %x\n", n, status);
			return 8;
		}
	}
	return is_right() ? 0 : 9;
}
