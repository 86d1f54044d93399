/* Long calls: what one call transfers when its memory is brought in piece by piece. Each line is a kind of
 * descriptor, flags and a length around that of a piece, with the answer, the bytes, and what was left behind. The
 * correct output is what the kernel prints without the library. */
#include "out.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#ifndef RWF_NOWAIT
#define RWF_NOWAIT 8
#endif
#ifndef RWF_APPEND
#define RWF_APPEND 16
#endif

/* The lengths of a piece: of streams, and of files with a budget of 32 MiB. */
#define SHORT (256l << 10)
#define LONG (4l << 20)
#define ROOM (14l << 20)
/* More than is requested waits after it. */
#define BEHIND 3000l

static char *text, *room;

static long sizes(long piece, int n) {
    long all[] = {piece - 1, piece, piece + 1, 2 * piece, 3 * piece + 777};
    return all[n];
}

/* The same for both lengths of a piece. */
#define BOTH 10
static long both(int n) { return n < 5 ? sizes(SHORT, n) : sizes(LONG, n - 5); }

static uint64_t sum(const char *at, long len) {
    uint64_t hash = 1469598103934665603u, word = 0;
    for (; len > 0; at += 8, len -= 8) {
        memcpy(&word, at, len < 8 ? len : 8);
        hash = (hash ^ word) * 1099511628211u;
    }
    return hash;
}

/* Evicts the start of both buffers, after zeroing the one to read into. */
static void prepare(long len) {
    if (len > ROOM - BEHIND) len = ROOM - BEHIND;
    memset(room, 0, len + BEHIND);
    push_out(room, len + BEHIND);
    push_out(text, len + BEHIND);
}

static void say(const char *what, long flags, long len, long answer) {
    int error = answer < 0 ? errno : 0;
    long bytes = answer > 0 ? (answer < ROOM ? answer : ROOM) : 0;
    printf("%s %lx %ld: %ld %d %016lx", what, flags, len, answer, error, (unsigned long)sum(room, bytes));
}

/* Ends a line with the number of bytes that are left in a stream or in a queue of messages. */
static void say_rest(int fd) {
    static char rest[1 << 20];
    long left = 0, calls = 0, now;
    uint64_t hash = 0;
    while ((now = recv(fd, rest, sizeof rest, MSG_DONTWAIT)) > 0) left += now, calls++, hash += sum(rest, now < 64 ? now : 64);
    printf(", left %ld%s", left, calls ? "" : " (nothing)");
    printf("\n");
}

static void grow(int fd) {
    int size = 64 << 20;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
}

static void connected(int kind, int fd[2]) {
    if (kind != -1) {
        CHECK(socketpair(AF_UNIX, kind, 0, fd) == 0);
        return grow(fd[0]), grow(fd[1]);
    }
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof at;
    grow(listening);
    CHECK(bind(listening, (void *)&at, sizeof at) == 0 && listen(listening, 1) == 0);
    CHECK(getsockname(listening, (void *)&at, &len) == 0);
    fd[0] = socket(AF_INET, SOCK_STREAM, 0);
    grow(fd[0]);
    CHECK(connect(fd[0], (void *)&at, sizeof at) == 0);
    fd[1] = accept(listening, NULL, NULL);
    CHECK(fd[1] >= 0 && close(listening) == 0);
}

/* Puts bytes into a stream, in small calls that no library cuts. Returns how many went in. */
static long put(int fd, const char *from, long len) {
    long done = 0;
    while (done < len) {
        long most = len - done < 200000 ? len - done : 200000;
        long now = send(fd, from + done, most, MSG_DONTWAIT);
        if (now < 0) break;
        done += now;
    }
    return done;
}

/* A vector of ranges of different lengths over `len` bytes. The first are short ones. */
static int cut(struct iovec *parts, char *at, long len, long each) {
    int n = 0;
    for (; n < 70 && len > 70; n++) parts[n] = (struct iovec){at, 1}, at++, len--;
    while (len > 0) {
        long now = n == 1023 || len < each ? len : each;
        parts[n++] = (struct iovec){at, now};
        at += now, len -= now;
    }
    return n;
}

static long receive(int way, int fd, long len, int flags) {
    static struct iovec parts[1024];
    struct msghdr message = {.msg_iov = parts};
    if (way == 0) return recv(fd, room, len, flags);
    message.msg_iovlen = cut(parts, room, len, 40000);
    if (way == 1) return recvmsg(fd, &message, flags);
    if (way == 2) return readv(fd, parts, message.msg_iovlen);
    if (way == 3) return preadv2(fd, parts, message.msg_iovlen, -1, 0);
    return read(fd, room, len);
}

static const char *names[] = {"recv", "recvmsg", "readv", "preadv2", "read"};

/* How much a stream holds is up to the kernel, but it is the same with the library and without it. */
static void streams(void) {
    static const int flags[] = {0, MSG_PEEK, MSG_PEEK | MSG_WAITALL, MSG_PEEK | MSG_DONTWAIT, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT,
        MSG_WAITALL, MSG_WAITALL | MSG_DONTWAIT, MSG_DONTWAIT, MSG_TRUNC};
    for (int kind = -1; kind <= 1; kind += 2)
        for (int way = 0; way < 5; way++)
            for (unsigned f = 0; f < (way < 2 ? sizeof flags / sizeof *flags : 1); f++)
                for (int n = 0; n < BOTH; n++) {
                    int fd[2];
                    long len = both(n);
                    connected(kind == 1 ? SOCK_STREAM : -1, fd);
                    long there = put(fd[0], text, len + BEHIND);
                    if (kind == -1) {
                        /* What TCP has accepted arrives a moment later. */
                        char one;
                        while (recv(fd[1], &one, 1, MSG_PEEK) == 1) {
                            int now = 0;
                            CHECK(syscall(SYS_ioctl, fd[1], 0x541b, &now) == 0);
                            if (now == there) break;
                            usleep(100);
                        }
                    }
                    prepare(len);
                    long answer = receive(way, fd[1], len, flags[f]);
                    /* TCP may end one of its calls early; the result repeats what it has. */
                    say(names[way], flags[f] | (kind == -1) << 30, len, answer);
                    say_rest(fd[1]);
                    close(fd[0]), close(fd[1]);
                }
}

/* To the kernel a message is one unit, and it stays one. */
static void messages(void) {
    static const int kinds[] = {SOCK_DGRAM, SOCK_SEQPACKET};
    static const int flags[] = {0, MSG_PEEK, MSG_TRUNC, MSG_PEEK | MSG_TRUNC, MSG_WAITALL, MSG_DONTWAIT};
    for (int k = 0; k < 2; k++)
        for (int way = 0; way < 5; way++)
            for (unsigned f = 0; f < (way < 2 ? sizeof flags / sizeof *flags : 1); f++)
                for (int n = 0; n < BOTH; n++) {
                    int fd[2];
                    long len = both(n);
                    connected(kinds[k], fd);
                    prepare(len);
                    long sent = send(fd[0], text, len, 0);
                    printf("sent %ld, ", sent);
                    CHECK(send(fd[0], text + 5, 5000, 0) == 5000);
                    prepare(len);
                    say(names[way], flags[f], len + 1000, receive(way, fd[1], len + 1000, flags[f]));
                    say_rest(fd[1]);
                    close(fd[0]), close(fd[1]);
                }
}

/* Descriptors in the middle of a stream arrive with the bytes that they were sent with. */
static void descriptors(void) {
    for (int first = 0; first < 3; first++) {
        int fd[2];
        connected(SOCK_STREAM, fd);
        union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr header; } control;
        CHECK(put(fd[0], text, first * 200000l) == first * 200000l);
        struct iovec part = {text, 10};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
        control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), &fd[0], sizeof(int));
        CHECK(sendmsg(fd[0], &message, 0) == 10);
        CHECK(put(fd[0], text, 700000) == 700000);
        for (int call = 0; call < 3; call++) {
            prepare(600000);
            part = (struct iovec){room, 600000};
            message.msg_controllen = sizeof control.bytes, message.msg_flags = 77;
            long answer = recvmsg(fd[1], &message, 0);
            say("recvmsg with descriptors", first, call, answer);
            printf(", control %ld, flags %x\n", (long)message.msg_controllen, message.msg_flags);
        }
        /* A long message with a descriptor, which arrives once. */
        char control2[CMSG_SPACE(sizeof(int))];
        int pair[2];
        connected(SOCK_STREAM, pair);
        control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), &fd[0], sizeof(int));
        part = (struct iovec){text, SHORT * 3};
        message = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
        prepare(3 * SHORT);
        long sent = sendmsg(pair[0], &message, 0), came = 0, with = 0;
        for (long now = 1; now > 0; came += now) {
            part = (struct iovec){room, 20000};
            message = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1, .msg_control = control2, .msg_controllen = sizeof control2};
            now = recvmsg(pair[1], &message, MSG_DONTWAIT);
            if (now < 0) break;
            with += message.msg_controllen > 0;
        }
        printf("sent %ld with a descriptor: came %ld, with it %ld\n", sent, came, with);
        close(fd[0]), close(fd[1]), close(pair[0]), close(pair[1]);
    }
}

/* The urgent byte is the last of the call, however long that is. */
static void urgent(void) {
    for (int n = 0; n < 5; n++) {
        int fd[2];
        long len = sizes(SHORT, n), behind = 0, now;
        connected(-1, fd);
        prepare(len);
        long sent = send(fd[0], text, len, MSG_OOB);
        usleep(20000);
        static char some[1 << 16];
        int at_mark = 0;
        while ((now = recv(fd[1], some, sizeof some, MSG_DONTWAIT)) > 0 && !at_mark) {
            behind += now;
            CHECK(syscall(SYS_ioctl, fd[1], 0x8905, &at_mark) == 0);
        }
        prepare(len);
        printf("urgent %ld: %ld, mark after %ld, ", len, sent, behind);
        say("byte", MSG_OOB, len, recv(fd[1], room, len, MSG_OOB | MSG_DONTWAIT));
        printf("\n");
        close(fd[0]), close(fd[1]);
    }
}

/* Non-blocking writes take what fits; what was taken is the start. */
static void unwaited(void) {
    for (int kind = -1; kind <= 1; kind += 2)
        for (int way = 0; way < 3; way++) {
            int fd[2], small = 100000;
            connected(kind == 1 ? SOCK_STREAM : -1, fd);
            CHECK(setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
            CHECK(fcntl(fd[0], F_SETFL, O_NONBLOCK) == 0 && fcntl(fd[1], F_SETFL, O_NONBLOCK) == 0);
            static struct iovec parts[1024];
            long sent = 0, came = 0;
            prepare(ROOM);
            while (came < ROOM) {
                struct msghdr message = {.msg_iov = parts, .msg_iovlen = cut(parts, text + sent, ROOM - sent, 50000)};
                long now = 0;
                if (sent < ROOM) {
                    if (way == 0) now = sendmsg(fd[0], &message, 0);
                    else if (way == 1) now = writev(fd[0], parts, message.msg_iovlen);
                    else now = send(fd[0], text + sent, ROOM - sent, 0);
                    CHECK(now > 0 || errno == EAGAIN);
                    if (now > 0) sent += now;
                }
                message.msg_iovlen = cut(parts, room + came, ROOM - came, 50000);
                now = way == 0 ? recvmsg(fd[1], &message, 0) : read(fd[1], room + came, ROOM - came);
                CHECK(now > 0 || errno == EAGAIN);
                if (now > 0) came += now;
                CHECK(came <= sent);
            }
            printf("unwaited %d %d: %s\n", kind, way, memcmp(text, room, ROOM) ? "other bytes" : "the same bytes");
            close(fd[0]), close(fd[1]);
        }
}

static void pipes(void) {
    static struct iovec parts[1024];
    for (int packets = 0; packets < 2; packets++)
        for (int way = 2; way < 5; way++)
            for (int n = 0; n < 5; n++) {
                int ends[2];
                long len = sizes(SHORT, n);
                CHECK(pipe2(ends, packets ? O_DIRECT | O_NONBLOCK : O_NONBLOCK) == 0);
                long size = fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
                prepare(len);
                long sent = way == 2 ? writev(ends[1], parts, cut(parts, text, len, 777)) : write(ends[1], text, len);
                printf("pipe of %ld, %d, sent %ld: ", size, packets, sent);
                CHECK(fcntl(ends[0], F_SETFL, packets ? O_DIRECT : 0) == 0);
                prepare(len);
                say(names[way], packets, len, receive(way, ends[0], len, 0));
                CHECK(fcntl(ends[0], F_SETFL, packets ? O_DIRECT | O_NONBLOCK : O_NONBLOCK) == 0);
                long now, left = 0, calls = 0;
                while ((now = read(ends[0], room, 100000)) > 0) left += now, calls++;
                printf(", left %ld in %ld\n", left, calls);
                close(ends[0]), close(ends[1]);
            }
}

static void files(void) {
    static struct iovec parts[1024];
    char name[] = "/var/tmp/in_pieces_XXXXXX";
    int fd = mkstemp(name);
    CHECK(fd >= 0);
    for (int flags = 0; flags < 3; flags++)
        for (int n = 0; n < 5; n++) {
            long len = sizes(LONG, n) < ROOM - BEHIND ? sizes(LONG, n) : ROOM - BEHIND;
            CHECK(ftruncate(fd, 0) == 0);
            prepare(len);
            int with = (int[]){0, O_APPEND, O_DIRECT}[flags];
            int again = open(name, O_RDWR | with);
            if (again < 0) { printf("no such flag here\n"); continue; }
            printf("file %d %ld: write %ld", flags, len, (long)write(again, text, len));
            printf(" pwrite %ld", (long)pwrite(again, text, len, 8192));
            int count = cut(parts, text, len, 50000);
            printf(" pwritev %ld", (long)pwritev(again, parts, count, 4096));
            printf(" append %ld", (long)pwritev2(again, parts, count, 0, RWF_APPEND));
            printf(" own %ld", (long)pwritev2(again, parts, count, -1, 0));
            printf(" bad %ld", (long)pwritev2(again, parts, count, -1, 1 << 30));
            struct stat status;
            CHECK(fstat(fd, &status) == 0);
            printf(" has %ld, at %ld\n", (long)status.st_size, (long)lseek(again, 0, SEEK_CUR));
            prepare(len);
            say("pread", flags, len, pread(again, room, len, 0));
            prepare(len);
            CHECK(lseek(again, 0, SEEK_SET) == 0);
            say(" read", flags, len, read(again, room, len));
            prepare(len);
            say(" preadv", flags, len, preadv(again, parts, cut(parts, room, len, 50000), 12288));
            prepare(len);
            say(" at the end", flags, len, pread(again, room, len, status.st_size - 999));
            printf("\n");
            close(again);
        }
    CHECK(unlink(name) == 0);
}

static void devices(void) {
    for (int n = 0; n < 5; n++) {
        long len = sizes(SHORT, n);
        int zero = open("/dev/zero", O_RDONLY), random = open("/dev/urandom", O_RDONLY), null = open("/dev/null", O_WRONLY);
        int counts = eventfd(5, EFD_NONBLOCK);
        prepare(len);
        memset(room, 1, len);
        push_out(room, ROOM);
        say("zero", 0, len, read(zero, room, len));
        printf(" null %ld", (long)write(null, text, len));
        prepare(len);
        printf(" urandom %ld", (long)read(random, room, len));
        prepare(len);
        printf(" getrandom %ld", (long)getrandom(room, len, 0));
        int blocks = 0;
        for (long at = 0; at + 64 <= len; at += 4096) blocks += sum(room + at, 64) == sum(text + ROOM - 64, 64) || !memcmp(room + at, "\0\0\0\0\0\0\0\0", 8);
        prepare(len);
        say(", eventfd", blocks, len, read(counts, room, len));
        printf(" and %ld\n", (long)read(counts, room, len));
        close(zero), close(random), close(null), close(counts);
    }
}

/* Many messages in one call. */
static void many(void) {
    static struct mmsghdr out[600], in[600];
    static struct iovec from[600], to[600];
    for (int flags = 0; flags < 3; flags++) {
        int fd[2], missing = 0;
        connected(SOCK_SEQPACKET, fd);
        prepare(ROOM);
        for (int n = 0; n < 600; n++) {
            from[n] = (struct iovec){text + n * 17000l, 17000 - n}, to[n] = (struct iovec){room + n * 17000l, 17000};
            out[n].msg_hdr = (struct msghdr){.msg_iov = &from[n], .msg_iovlen = 1};
            in[n].msg_hdr = (struct msghdr){.msg_iov = &to[n], .msg_iovlen = 1};
        }
        int sent = sendmmsg(fd[0], out, 600, MSG_DONTWAIT);
        prepare(ROOM);
        struct timespec soon = {0, 50000000};
        int with = (int[]){MSG_DONTWAIT, MSG_WAITFORONE, MSG_PEEK | MSG_DONTWAIT}[flags];
        int came = recvmmsg(fd[1], in, 600, with, flags == 1 ? &soon : NULL);
        for (int n = 0; n < came; n++) missing += in[n].msg_len != (flags == 2 ? 17000u : 17000u - n) || memcmp(to[n].iov_base, from[flags == 2 ? 0 : n].iov_base, in[n].msg_len);
        printf("many %d: sent %d, came %d, wrong %d\n", flags, sent, came, missing);
        close(fd[0]), close(fd[1]);
    }
}

int main(void) {
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    text = block(ROOM), room = block(ROOM);
    /* Each 64 bytes have their number, and compress well: the budget is for the memory that calls hold. */
    for (long n = 0; n < ROOM; n++) text[n] = (char)(n % 64 < 4 ? n / 64 * 2654435761u >> n % 64 * 8 : 0x33);
    streams();
    messages();
    descriptors();
    urgent();
    unwaited();
    pipes();
    files();
    devices();
    many();
    return 0;
}
