/* Sends parts of an arena with MSG_ZEROCOPY to slow readers, and meanwhile uses the rest of the arena. Formerly
 * the pages were evicted while the sockets' queues referred to them, and the readers got the later contents of the
 * frames. The option is now refused, and without the option the flag has no effect. */
#include "check.h"
#include "words.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

/* There are four sockets, because with one socket no frame was reused in one run of two. */
enum { SOCKETS = 4 };
static const size_t LEN = 200 * MIB, PART = MIB;

static size_t part(int n) { return LEN / (SOCKETS + 1) * (n + 1) / PAGE * PAGE; }

/* Sends as much of a part as the socket's queue accepts. */
static size_t give(int to, const char *data) {
    int big = 8 << 20, one = 1;
    setsockopt(to, SOL_SOCKET, SO_SNDBUFFORCE, &big, sizeof big);
    setsockopt(to, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one);
    CHECK(fcntl(to, F_SETFL, O_NONBLOCK) == 0);
    size_t sent = 0;
    while (sent < PART) {
        size_t left = PART - sent;
        ssize_t n = send(to, data + sent, left > 65536 ? 65536 : left, MSG_ZEROCOPY);
        if (n <= 0)
            break;
        sent += n;
    }
    CHECK(sent > 0);
    return sent;
}

int main(void) {
    int fd[SOCKETS][2];
    size_t sent[SOCKETS];
    char *arena = map(LEN);
    put_words(arena, LEN, 3);
    for (int n = 0; n < SOCKETS; n++) {
        connected(fd[n]);
        put_words(arena + part(n), PART, 9 + n);
        sent[n] = give(fd[n][0], arena + part(n));
    }
    for (int round = 0; round < 2; round++)
        for (int n = 0; n <= SOCKETS; n++) {
            size_t from = n > 0 ? part(n - 1) + PART : 0, to = n < SOCKETS ? part(n) : LEN;
            put_words(arena + from, to - from, round);
        }
    char *seen = malloc(PART);
    for (int n = 0; n < SOCKETS; n++) {
        read_all(fd[n][1], seen, sent[n]);
        CHECK(wrong_words(seen, sent[n] & ~7ul, 9 + n) == 0);
    }
    return 0;
}
