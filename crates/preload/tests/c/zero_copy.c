/* Sends 2 MiB with MSG_ZEROCOPY to a reader that is slow, and uses other memory meanwhile. Found with it: the
   pages were moved out while the socket's queue referred to them, and the reader got what their frames held
   then. The option is refused now, and the flag means nothing without it. */
#include "check.h"
#include "words.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

int main(void) {
    const size_t len = 2 * MIB;
    int fd[2], big = 8 << 20, one = 1;
    connected(fd);
    setsockopt(fd[0], SOL_SOCKET, SO_SNDBUFFORCE, &big, sizeof big);
    setsockopt(fd[0], SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one);
    char *data = map(len);
    put_words(data, len, 9);
    CHECK(fcntl(fd[0], F_SETFL, O_NONBLOCK) == 0);
    size_t sent = 0;
    while (sent < len) {
        size_t left = len - sent;
        ssize_t n = send(fd[0], data + sent, left > 65536 ? 65536 : left, MSG_ZEROCOPY);
        if (n <= 0)
            break;
        sent += n;
    }
    CHECK(sent > 0);
    char *other = map(200 * MIB);
    for (int round = 0; round < 2; round++)
        put_words(other, 200 * MIB, round);
    char *seen = malloc(len);
    read_all(fd[1], seen, sent);
    CHECK(wrong_words(seen, sent & ~7ul, 9) == 0);
    return 0;
}
