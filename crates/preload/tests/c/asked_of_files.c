/* Queries by ioctl whose structure lies on the stack and names absent memory: which pages of a range are present,
 * and what is mapped at an address. */
#include "out.h"
#include <fcntl.h>
#include <sys/ioctl.h>

struct scan { uint64_t size, flags, start, end, walk_end, ranges, count, most, inverted, mask, any, returned; };
struct question { uint64_t size, flags, address, start, end, mapped, page, offset, inode; uint32_t major, minor, name_size, build_size;
    uint64_t name, build; };

static char target[64 * PAGE] __attribute__((aligned(4096)));

int main(void) {
    int pages = open("/proc/self/pagemap", O_RDONLY), maps = open("/proc/self/maps", O_RDONLY);
    CHECK(pages >= 0 && maps >= 0);
    memset(target, 1, sizeof target);
    char *ranges = block(64 * 24), *name = block(PAGE);
    memset(name, 0, PAGE);
    push_out(ranges, 64 * 24);
    push_out(name, PAGE);
    press();
    struct scan scan = {.size = sizeof scan, .start = (uintptr_t)target, .end = (uintptr_t)target + sizeof target,
        .ranges = (uintptr_t)ranges, .count = 64, .any = 0x3f, .returned = 8};
    int answer = ioctl(pages, _IOWR('f', 16, struct scan), &scan);
    printf("pages: %s, errno %d\n", answer > 0 ? "some" : "none", answer < 0 ? errno : 0);
    struct question asked = {.size = sizeof asked, .address = (uintptr_t)&main, .name_size = PAGE, .name = (uintptr_t)name};
    answer = ioctl(maps, _IOWR('f', 17, struct question), &asked);
    printf("mapped: %d, errno %d, %s\n", answer, answer < 0 ? errno : 0, answer == 0 && strstr(name, "asked_of_files") ? "this program" : "nothing");
    return 0;
}
