/* A program that asks how much memory there is gets its budget as the answer, however it asks. The arguments are
 * the budget in bytes, or 0 if the machine is to be reported, and whether this is a started child. */
#include "check.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>

int __open_2(const char *path, int flags);
int __openat_2(int at, const char *path, int flags);

static unsigned long budget;
static unsigned long machine;

/* Returns the number after `name` in a text. */
static unsigned long kib(const char *text, const char *name) {
    const char *line = strstr(text, name);
    unsigned long number;
    CHECK(line && sscanf(line + strlen(name), ": %lu kB", &number) == 1);
    return number;
}

static void expect(unsigned long total, unsigned long left) {
    CHECK(total == (budget ? budget : machine));
    CHECK(left > 0 && left < total);
}

/* Checks what an open file says, and that it is a readable file. */
static void expect_in(int fd) {
    char text[8192], again[8192];
    CHECK(fd >= 0);
    ssize_t len = read(fd, text, sizeof text - 1);
    CHECK(len > 500);
    text[len] = 0;
    expect(kib(text, "MemTotal") * 1024, kib(text, "MemAvailable") * 1024);
    CHECK(kib(text, "MemFree") <= kib(text, "MemTotal"));
    if (budget) CHECK(kib(text, "SwapTotal") == 0 && kib(text, "Cached") == 0);
    CHECK(strstr(text, "DirectMap4k:") && strstr(text, "VmallocTotal:"));
    CHECK(read(fd, again, sizeof again) == 0);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    CHECK(read(fd, again, 8) == 8 && memcmp(again, "MemTotal", 8) == 0);
    CHECK(write(fd, text, 1) == -1 && errno == EBADF);
    struct stat status;
    CHECK(fstat(fd, &status) == 0 && S_ISREG(status.st_mode));
    CHECK(close(fd) == 0);
}

static void by_files(const char *path) {
    expect_in(open(path, O_RDONLY));
    expect_in(open64(path, O_RDONLY));
    expect_in(openat(AT_FDCWD, path, O_RDONLY));
    expect_in(openat64(-1, path, O_RDONLY));
    expect_in(__open_2(path, O_RDONLY));
    expect_in(__openat_2(AT_FDCWD, path, O_RDONLY));
    FILE *stream = fopen(path, "re");
    CHECK(stream && (fcntl(fileno(stream), F_GETFD) & FD_CLOEXEC));
    char line[128];
    CHECK(fgets(line, sizeof line, stream));
    CHECK(kib(line, "MemTotal") * 1024 == (budget ? budget : machine));
    CHECK(fclose(stream) == 0);
    int kept = open(path, O_RDONLY), closed = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(!(fcntl(kept, F_GETFD) & FD_CLOEXEC) && (fcntl(closed, F_GETFD) & FD_CLOEXEC));
    close(kept), close(closed);
}

static void by_calls(void) {
    expect(sysconf(_SC_PHYS_PAGES) * PAGE, sysconf(_SC_AVPHYS_PAGES) * PAGE);
    expect(get_phys_pages() * PAGE, get_avphys_pages() * PAGE);
    CHECK(sysconf(_SC_PAGESIZE) == PAGE && sysconf(-1) == -1);
    struct sysinfo one, *two = malloc(sizeof *two);
    CHECK(sysinfo(&one) == 0 && syscall(SYS_sysinfo, two) == 0);
    expect(one.totalram * one.mem_unit, one.freeram * one.mem_unit);
    expect(two->totalram * two->mem_unit, two->freeram * two->mem_unit);
    if (budget) CHECK(one.totalswap == 0 && two->bufferram == 0);
    free(two);
    CHECK(sysinfo((struct sysinfo *)16) == -1 && errno == EFAULT);
}

/* Files that must not be changed, and opens that fail. */
static void others(void) {
    char text[64];
    int fd = open("/proc/self/stat", O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, 8) == 8 && atoi(text) == getpid());
    close(fd);
    CHECK(open("/proc/meminfo.no", O_RDONLY) == -1 && errno == ENOENT);
    CHECK(open("/proc/meminfo/x", O_RDONLY) == -1 && errno == ENOTDIR);
    CHECK(open((char *)16, O_RDONLY) == -1 && errno == EFAULT);
    CHECK(fopen("/proc/nothing", "r") == NULL && errno == ENOENT);
    int path = open("/proc/meminfo", O_PATH);
    CHECK(path >= 0 && read(path, text, 1) == -1 && errno == EBADF);
    close(path);
    /* A different file with the same name as one of those. */
    char name[] = "/tmp/told-XXXXXX", inside[64];
    CHECK(mkdtemp(name));
    snprintf(inside, sizeof inside, "%s/meminfo", name);
    int made = open(inside, O_CREAT | O_EXCL | O_RDWR, 0640);
    struct stat status;
    CHECK(made >= 0 && fstat(made, &status) == 0 && (status.st_mode & 07777) == (0640 & ~umask(022)));
    CHECK(write(made, "MemTotal: 5 kB\n", 15) == 15);
    close(made);
    made = open(inside, O_RDONLY);
    CHECK(read(made, text, sizeof text) == 15 && kib(text, "MemTotal") == 5);
    close(made);
    CHECK(unlink(inside) == 0 && rmdir(name) == 0);
}

int main(int count, char **arguments) {
    budget = strtoul(arguments[1], NULL, 10);
    /* The kernel's own answer, by an instruction that no library sees. */
    struct sysinfo info;
    CHECK(bare_call(SYS_sysinfo, (long)&info, 0, 0, 0) == 0);
    machine = info.totalram * info.mem_unit;
    CHECK(machine > budget);
    umask(022);
    by_calls();
    by_files("/proc/meminfo");
    char *path = malloc(256 << 10);
    CHECK(path);
    by_files(strcpy(path, "/proc/meminfo"));
    others();
    if (count > 2) return 0;
    /* Touched memory is no longer left. */
    long before = sysconf(_SC_AVPHYS_PAGES);
    size_t len = 8 * MIB;
    char *touched = map(len);
    fill(touched, len, 3);
    if (budget) CHECK(sysconf(_SC_AVPHYS_PAGES) <= before - (long)(len / PAGE) / 2);
    verify(touched, len, 3);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        by_calls();
        by_files("/proc/meminfo");
        execl("/proc/self/exe", arguments[0], arguments[1], "child", NULL);
        _exit(9);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
