/* Makes words that compress little and can be checked, and a socket to read them from. */
#ifndef WORDS_H
#define WORDS_H
#include <netinet/in.h>
#include <sys/socket.h>
#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif
#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif

static inline uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static inline uint64_t word(uint64_t seed, size_t n) { return mix(seed + n) & 0xffffffff; }

static inline void put_words(void *at, size_t len, uint64_t seed) {
    for (size_t n = 0; n < len / 8; n++)
        ((uint64_t *)at)[n] = word(seed, n);
}

static inline size_t wrong_words(const void *at, size_t len, uint64_t seed) {
    size_t wrong = 0;
    for (size_t n = 0; n < len / 8; n++)
        wrong += ((const uint64_t *)at)[n] != word(seed, n);
    return wrong;
}

static inline void read_all(int fd, char *to, size_t len) {
    for (size_t done = 0; done < len;) {
        ssize_t n = read(fd, to + done, len - done);
        CHECK(n > 0);
        done += n;
    }
}

/* Makes a TCP connection to the process itself: data that is written to the first descriptor is read from the second,
 * which buffers little. */
static inline void connected(int fd[2]) {
    int listening = socket(AF_INET, SOCK_STREAM, 0), small = 64 << 10;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof at;
    CHECK(setsockopt(listening, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    CHECK(bind(listening, (void *)&at, sizeof at) == 0 && listen(listening, 1) == 0);
    CHECK(getsockname(listening, (void *)&at, &len) == 0);
    fd[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd[0], (void *)&at, sizeof at) == 0);
    fd[1] = accept(listening, NULL, NULL);
    CHECK(fd[1] >= 0 && close(listening) == 0);
}
#endif
