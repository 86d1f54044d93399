/* The program walks a linked structure in random order, like a collector's mark phase. The structure is a little
 * larger than the budget of 16 MiB, so each of the hundreds of thousands of steps may fault. The walk is
 * inherently slow, and must reach its end with the correct sum. */
#include "check.h"
#include "words.h"

struct node {
    struct node *next;
    long value;
    char rest[32];
};
enum { NODES = 360000, WALKS = 1 };

int main(void) {
    struct node *nodes = malloc(NODES * sizeof *nodes);
    int *order = malloc(NODES * sizeof *order);
    CHECK(nodes && order);
    for (int n = 0; n < NODES; n++) {
        nodes[n].value = n;
        order[n] = n;
    }
    for (int n = NODES - 1; n > 0; n--) {
        int other = mix(n) % (n + 1), kept = order[n];
        order[n] = order[other];
        order[other] = kept;
    }
    for (int n = 0; n < NODES; n++) nodes[order[n]].next = &nodes[order[(n + 1) % NODES]];
    free(order);
    long sum = 0;
    struct node *node = nodes;
    for (int n = 0; n < WALKS * NODES; n++) {
        sum += node->value;
        node = node->next;
    }
    CHECK(node == nodes);
    printf("%ld\n", sum);
    return 0;
}
