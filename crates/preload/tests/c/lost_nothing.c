/* What the kernel gives out once does not get lost on its way to absent memory: datagrams, pipes, terminals, an
 * eventfd's counts, and messages whose header, vector, address and control data are also absent. Covers calls by
 * the C library's functions, by its checked forms, by its streams and by number. */
#include "out.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <netinet/in.h>

ssize_t __read_chk(int, void *, size_t, size_t);
ssize_t __recv_chk(int, void *, size_t, size_t, int);

static char *text, *room;

static void both_out(void) {
    push_out(text, 256 << 10);
    push_out(room, 256 << 10);
}

static void put_text(void) {
    for (int n = 0; n < 256 << 10; n++) text[n] = (char)(n * 7 + n / 251);
    memset(room, 0, 256 << 10);
    both_out();
}

static void datagrams(void) {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    for (int way = 0; way < 5; way++) {
        put_text();
        if (way == 0) {
            CHECK(send(pair[0], text, 30000, 0) == 30000);
            CHECK(recv(pair[1], room, 100000, 0) == 30000);
        } else if (way == 1) {
            CHECK(write(pair[0], text, 30000) == 30000);
            CHECK(__read_chk(pair[1], room, 100000, 200000) == 30000);
        } else if (way == 2) {
            CHECK(sendto(pair[0], text, 30000, 0, NULL, 0) == 30000);
            CHECK(recvfrom(pair[1], room, 100000, 0, NULL, NULL) == 30000);
        } else if (way == 3) {
            CHECK(syscall(SYS_sendto, pair[0], text, 30000l, 0l, NULL, 0l) == 30000);
            CHECK(syscall(SYS_recvfrom, pair[1], room, 100000l, 0l, NULL, NULL) == 30000);
        } else {
            struct iovec from[3] = {{text, 10000}, {text + 10000, 0}, {text + 10000, 20000}};
            struct iovec to[2] = {{room, 15000}, {room + 15000, 100000}};
            CHECK(writev(pair[0], from, 3) == 30000);
            both_out();
            CHECK(readv(pair[1], to, 2) == 30000);
        }
        CHECK(memcmp(text, room, 30000) == 0);
    }
    close(pair[0]), close(pair[1]);
}

/* A header, a vector, an address and control data, each on its own page from malloc. */
static void messages(void) {
    int from = socket(AF_INET, SOCK_DGRAM, 0), to = socket(AF_INET, SOCK_DGRAM, 0), one = 1;
    CHECK(from >= 0 && to >= 0);
    struct sockaddr_in *name = (void *)block(PAGE), *peer = (void *)block(PAGE);
    *name = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t *len = (void *)block(PAGE);
    *len = sizeof *name;
    push_out(name, PAGE);
    CHECK(bind(to, (void *)name, sizeof *name) == 0);
    push_out(name, PAGE), push_out(len, PAGE);
    CHECK(getsockname(to, (void *)name, len) == 0 && name->sin_port != 0);
    CHECK(setsockopt(to, IPPROTO_IP, IP_PKTINFO, &one, sizeof one) == 0);
    char *control = block(PAGE);
    for (int many = 0; many < 2; many++) {
        struct mmsghdr *out = (void *)block(PAGE), *in = (void *)block(PAGE);
        struct iovec *parts = (void *)block(PAGE), *rooms = (void *)block(PAGE);
        put_text();
        for (int n = 0; n < 3; n++) {
            parts[n] = (struct iovec){text + n * 20000, 5000};
            rooms[n] = (struct iovec){room + n * 20000, 20000};
            out[n].msg_hdr = (struct msghdr){.msg_name = name, .msg_namelen = sizeof *name,
                .msg_iov = &parts[n], .msg_iovlen = 1};
            in[n].msg_hdr = (struct msghdr){.msg_name = peer, .msg_namelen = sizeof *peer,
                .msg_iov = &rooms[n], .msg_iovlen = 1, .msg_control = control, .msg_controllen = 512};
        }
        both_out();
        push_out(name, PAGE), push_out(out, PAGE), push_out(parts, PAGE);
        if (many) CHECK(sendmmsg(from, out, 3, 0) == 3 && out[2].msg_len == 5000);
        else for (int n = 0; n < 3; n++) CHECK(sendmsg(from, &out[n].msg_hdr, 0) == 5000);
        both_out();
        push_out(peer, PAGE), push_out(in, PAGE), push_out(rooms, PAGE), push_out(control, PAGE);
        if (many) CHECK(recvmmsg(to, in, 3, 0, NULL) == 3 && in[2].msg_len == 5000);
        else for (int n = 0; n < 3; n++) CHECK(recvmsg(to, &in[n].msg_hdr, 0) == 5000);
        for (int n = 0; n < 3; n++) CHECK(memcmp(text + n * 20000, room + n * 20000, 5000) == 0);
        CHECK(in[2].msg_hdr.msg_controllen > 0 && CMSG_FIRSTHDR(&in[2].msg_hdr)->cmsg_type == IP_PKTINFO);
        CHECK(peer->sin_family == AF_INET);
    }
    /* Only the address and its length. */
    put_text();
    push_out(name, PAGE);
    CHECK(sendto(from, text, 100, 0, (void *)name, sizeof *name) == 100);
    *len = sizeof *peer;
    both_out(), push_out(peer, PAGE), push_out(len, PAGE);
    CHECK(recvfrom(to, room, 1000, 0, (void *)peer, len) == 100 && *len == sizeof *peer);
    CHECK(memcmp(text, room, 100) == 0);
    close(from), close(to);
}

static void small_counts(void) {
    uint64_t *word = (void *)block(PAGE);
    int fd = eventfd(0, 0);
    for (uint64_t n = 1; n < 50; n++) {
        *word = n;
        push_out(word, PAGE);
        CHECK(write(fd, word, 8) == 8);
        push_out(word, PAGE);
        CHECK(read(fd, word, 8) == 8 && *word == n);
    }
    close(fd);
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec *soon = (void *)block(PAGE);
    *soon = (struct itimerspec){.it_value.tv_nsec = 1000};
    push_out(soon, PAGE), push_out(word, PAGE);
    CHECK(timerfd_settime(timer, 0, soon, NULL) == 0);
    CHECK(read(timer, word, 8) == 8 && *word == 1);
    close(timer);
}

static void terminal(void) {
    int ours, theirs;
    CHECK(openpty(&ours, &theirs, NULL, NULL, NULL) == 0);
    for (int way = 0; way < 2; way++) {
        put_text();
        CHECK(write(ours, "a line\n", 7) == 7);
        both_out();
        if (way == 0) CHECK(read(theirs, room, 100) == 7);
        else {
            FILE *stream = fdopen(dup(theirs), "r");
            char *line = NULL;
            size_t len = 0;
            CHECK(getline(&line, &len, stream) == 7);
            memcpy(room, line, 7);
            free(line), fclose(stream);
        }
        CHECK(memcmp(room, "a line\n", 7) == 0);
    }
    close(ours), close(theirs);
}

static void *writes(void *fd) {
    for (long done = 0; done < 8l << 20;) {
        char bytes[3001];
        for (size_t n = 0; n < sizeof bytes; n++) bytes[n] = (char)((done + (long)n) % 253);
        long more = (8l << 20) - done < (long)sizeof bytes ? (8l << 20) - done : (long)sizeof bytes;
        long now = write(*(int *)fd, bytes, (size_t)more);
        CHECK(now > 0);
        done += now;
    }
    close(*(int *)fd);
    return NULL;
}

/* More than a pipe holds, and more than is held at once. */
static void pipes(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    pthread_t writer;
    CHECK(pthread_create(&writer, NULL, writes, &ends[1]) == 0);
    char *all = block(8 << 20);
    long done = 0, now;
    for (int turn = 0; (now = 0, done < 8l << 20); turn++) {
        push_out(all, 8 << 20);
        struct iovec parts[2] = {{all + done, 1000}, {all + done + 1000, (size_t)((8l << 20) - done)}};
        if ((8l << 20) - done < 2000) now = read(ends[0], all + done, (size_t)((8l << 20) - done));
        else {
            parts[1].iov_len -= 1000;
            now = turn % 2 ? readv(ends[0], parts, 2) : read(ends[0], all + done, (size_t)((8l << 20) - done));
        }
        CHECK(now > 0);
        done += now;
    }
    for (long n = 0; n < 8l << 20; n++) CHECK(all[n] == (char)(n % 253));
    CHECK(read(ends[0], all, 1) == 0);
    CHECK(pthread_join(writer, NULL) == 0);
    close(ends[0]);
    free(all);
}

static void *takes(void *fd) {
    char *got = malloc(12 << 20);
    CHECK(recv(*(int *)fd, got, 12 << 20, MSG_WAITALL) == 12 << 20);
    for (long n = 0; n < 12l << 20; n++) CHECK(got[n] == (char)(n % 249));
    free(got);
    return NULL;
}

/* Files and stream sockets transfer long buffers in one call, however much is held at once. */
static void long_ones(void) {
    long len = 12l << 20;
    char *all = block((size_t)len);
    for (long n = 0; n < len; n++) all[n] = (char)(n % 249);
    FILE *file = tmpfile();
    int fd = fileno(file);
    push_out(all, (size_t)len);
    CHECK(pwrite(fd, all, (size_t)len, 100) == len);
    struct iovec parts[300];
    for (int n = 0; n < 300; n++) parts[n] = (struct iovec){all + n * 40000l, 40000};
    memset(all, 0, (size_t)len);
    push_out(all, (size_t)len);
    CHECK(preadv(fd, parts, 300, 100) == 300 * 40000l);
    CHECK(pread(fd, all + 300 * 40000l, (size_t)len, 100 + 300 * 40000l) == len - 300 * 40000l);
    for (long n = 0; n < len; n++) CHECK(all[n] == (char)(n % 249));
    push_out(all, (size_t)len);
    CHECK(pwritev2(fd, parts, 300, 0, 0) == 300 * 40000l);
    CHECK(lseek(fd, 0, SEEK_CUR) == 0);
    CHECK(preadv2(fd, parts, 300, -1, 0) == 300 * 40000l && lseek(fd, 0, SEEK_CUR) == 300 * 40000l);
    for (long n = 0; n < len; n++) CHECK(all[n] == (char)(n % 249));
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pthread_t taker;
    CHECK(pthread_create(&taker, NULL, takes, &pair[1]) == 0);
    push_out(all, (size_t)len);
    CHECK(write(pair[0], all, (size_t)len) == len);
    CHECK(pthread_join(taker, NULL) == 0);
    fclose(file);
    free(all);
}

/* Errors are the kernel's, and nothing crashes. */
static void errors(void) {
    /* The compiler rejects what it knows to be wrong. */
    void *volatile null = NULL;
    volatile int minus_one = -1;
    int ends[2];
    CHECK(pipe(ends) == 0);
    char *none = map(2 * PAGE);
    CHECK(write(ends[1], "abc", 3) == 3);
    CHECK(mprotect(none, PAGE, PROT_READ) == 0);
    CHECK(read(ends[0], none, 3) == -1 && errno == EFAULT);
    CHECK(mprotect(none, PAGE, PROT_NONE) == 0);
    CHECK(write(ends[1], none, 3) == -1 && errno == EFAULT);
    CHECK(read(ends[0], null, 3) == -1 && errno == EFAULT);
    CHECK(readv(ends[0], null, 1) == -1 && errno == EFAULT);
    CHECK(readv(ends[0], (void *)none, 1) == -1 && errno == EFAULT);
    struct iovec parts[2] = {{text, 3}, {text, (size_t)-1}};
    CHECK(readv(ends[0], parts, 2) == -1 && errno == EINVAL);
    CHECK(readv(ends[0], parts, minus_one) == -1 && errno == EINVAL);
    CHECK(read(-1, text, 3) == -1 && errno == EBADF);
    CHECK(sendmsg(ends[0], null, 0) == -1 && (errno == ENOTSOCK || errno == EFAULT));
    CHECK(read(ends[0], text, 3) == 3 && memcmp(text, "abc", 3) == 0);
    CHECK(read(ends[0], text, 0) == 0);
    CHECK(munmap(none, 2 * PAGE) == 0);
}

static void waiting(void) {
    int ends[2], set = epoll_create1(0);
    CHECK(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
    struct epoll_event *events = (void *)block(4 * PAGE);
    events[0] = (struct epoll_event){.events = EPOLLIN, .data.u64 = 77};
    push_out(events, 4 * PAGE);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], events) == 0);
    push_out(events, 4 * PAGE);
    CHECK(epoll_wait(set, events, 1000, 0) == 1 && events[0].data.u64 == 77);
    struct pollfd *fds = (void *)block(PAGE);
    fds[0] = (struct pollfd){ends[0], POLLIN, 0};
    push_out(fds, PAGE);
    CHECK(poll(fds, 1, 1000) == 1 && fds[0].revents == POLLIN);
    fd_set *reads = (void *)block(PAGE);
    struct timeval *timeout = (void *)block(PAGE);
    FD_ZERO(reads);
    FD_SET(ends[0], reads);
    *timeout = (struct timeval){1, 0};
    push_out(reads, PAGE), push_out(timeout, PAGE);
    CHECK(select(ends[0] + 1, reads, NULL, NULL, timeout) == 1 && FD_ISSET(ends[0], reads));
}

int main(void) {
    text = block(256 << 10), room = block(256 << 10);
    errors();
    datagrams();
    messages();
    small_counts();
    terminal();
    pipes();
    long_ones();
    waiting();
    puts("nothing lost");
    return 0;
}
