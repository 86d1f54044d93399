/* A file is mapped with MAP_FIXED into managed memory: its offset is correct, its neighbours keep their contents,
 * and the addresses can be reused. */
#include "check.h"
#include <fcntl.h>

int main(void) {
    FILE *file = tmpfile();
    int fd = fileno(file);
    char *page = malloc(PAGE);
    for (int n = 0; n < 16; n++) {
        memset(page, 'a' + n, PAGE);
        CHECK(write(fd, page, PAGE) == (ssize_t)PAGE);
    }
    char *at = map(8 * MIB);
    fill(at, 8 * MIB, 50);
    char *place = at + 2 * MIB;
    CHECK(mmap(place, 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 5 * PAGE) == place);
    CHECK(place[0] == 'f' && place[3 * PAGE] == 'i');
    CHECK(mprotect(at, 8 * MIB, PROT_READ | PROT_WRITE) == 0);
    place[0] = 'z';
    press();
    CHECK(place[0] == 'z' && place[PAGE] == 'g');
    verify(at, 2 * MIB, 50);
    verify(place + 4 * PAGE, 4 * MIB, 50 + 2 * MIB / PAGE + 4);
    CHECK(mmap(place + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
          place + PAGE);
    CHECK(place[PAGE] == 0 && place[0] == 'z' && place[2 * PAGE] == 'h');
    place[PAGE] = 1;
    CHECK(munmap(at, 8 * MIB) == 0);
    CHECK(mmap(at, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == at);
    for (size_t n = 0; n < 8 * MIB; n += PAGE) CHECK(at[n] == 0);
    fill(at, 8 * MIB, 1);
    press();
    verify(at, 8 * MIB, 1);
    return 0;
}
