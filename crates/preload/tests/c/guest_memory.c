/* A program that gives memory to a virtual machine. Managed memory is refused before the kernel looks at anything;
 * shared memory is left to the kernel, for which this descriptor is not one of KVM's. */
#include "check.h"
#include <linux/kvm.h>
#include <sys/ioctl.h>

static int told(void *memory) {
    struct kvm_userspace_memory_region region = {0, 0, 0, MIB, (uintptr_t)memory};
    return ioctl(1, KVM_SET_USER_MEMORY_REGION, &region) ? errno : 0;
}

int main(void) {
    char *managed = map(MIB);
    void *shared = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    CHECK(told(managed) == EINVAL && told(managed) == EINVAL);
    CHECK(told(shared) == ENOTTY);
    return 0;
}
