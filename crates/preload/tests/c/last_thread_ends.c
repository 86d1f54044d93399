/* The first thread starts other threads and ends by pthread_exit. The process ends with its last thread.
 *
 * Formerly the process stayed forever, and was deaf to SIGTERM. The C library counts the remaining threads,
 * including the library's own, which never end and block all signals. With the argument "alone" the program has
 * only one thread. With "child" the threads are those of a forked child, where the library has created its own
 * threads anew.
 *
 * Functions registered with atexit run in the last thread, as they do without the library. With "slowly" they take
 * half a second. The library creates a thread about then, and that thread once took itself for the last and ended the
 * process before the program had printed anything.
 *
 * With a number the last thread ends after that many microseconds. When that was the moment at which the library
 * created its threads, a tenth of a second after the start, one of these was the last that the C library counted. It
 * ran the functions registered with atexit, and what they printed was lost, because it has descriptors of its own.
 * With "thread" and a number the last thread is that of a child which another than the first thread has forked. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (24u << 20)

static void *work(void *number)
{
	unsigned char value = (unsigned char)(long)number;
	unsigned char *bytes = malloc(BYTES);
	size_t i;

	if (!bytes)
		_exit(2);
	memset(bytes, value, BYTES);
	for (i = 0; i < BYTES; i++)
		if (bytes[i] != value)
			_exit(3);
	free(bytes);
	return NULL;
}

static int slowly;
static long pause_us;

static void *end_later(void *unused)
{
	usleep(pause_us);
	return unused;
}

/* In the child, the forking thread ends by its function's return. */
static void *fork_and_end(void *unused)
{
	pid_t child = fork();
	int status;

	if (child) {
		if (child < 0 || waitpid(child, &status, 0) != child)
			_exit(4);
		_exit(status ? 5 : 0);
	}
	usleep(pause_us);
	return unused;
}

static void end(void)
{
	if (slowly)
		usleep(500000);
	puts("ended");
}

int main(int count, char **arguments)
{
	const char *form = count > 1 ? arguments[1] : "";
	pthread_t thread;
	long i;

	if (!strcmp(form, "child")) {
		pid_t child = fork();
		int status;

		if (child) {
			if (child < 0 || waitpid(child, &status, 0) != child)
				return 4;
			return status ? 5 : 0;
		}
	}
	slowly = !strcmp(form, "slowly");
	atexit(end);
	pause_us = atol(arguments[count - 1]);
	if (pause_us) {
		void *bytes = malloc(BYTES);
		int forks = !strcmp(form, "thread");

		if (!bytes)
			return 2;
		memset(bytes, 1, BYTES);
		if (pthread_create(&thread, NULL, forks ? fork_and_end : end_later, NULL))
			return 6;
		pthread_exit(NULL);
	}
	for (i = 1; i < 4 && strcmp(form, "alone") && !slowly; i++)
		if (pthread_create(&thread, NULL, work, (void *)i))
			return 6;
	pthread_exit(NULL);
}
