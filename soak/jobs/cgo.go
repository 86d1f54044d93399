package main

/*
#include <stdlib.h>
#include <string.h>
static unsigned long sum(const unsigned char *b, size_t n) { unsigned long s = 0; while (n--) s = s * 31 + b[n]; return s; }
*/
import "C"

import (
	"fmt"
	"sort"
	"sync"
	"unsafe"
)

type row struct {
	key  int
	name string
	next *row
}

func main() {
	rows := map[int]*row{}
	var last *row
	for n := 0; n < 600000; n++ {
		last = &row{n * 7919 % 1000003, fmt.Sprintf("row %d", n), last}
		rows[last.key] = last
	}
	keys := make([]int, 0, len(rows))
	for key := range rows {
		keys = append(keys, key)
	}
	sort.Ints(keys)
	total := 0
	for at := last; at != nil; at = at.next {
		total += len(at.name) * (at.key % 17)
	}
	sums := make([]uint64, 8)
	var group sync.WaitGroup
	for worker := range sums {
		group.Add(1)
		go func() {
			defer group.Done()
			block := C.malloc(4 << 20)
			C.memset(block, C.int(worker), 4<<20)
			sums[worker] = uint64(C.sum((*C.uchar)(block), 4<<20))
			garbage := make([][]byte, 0)
			for n := 0; n < 400; n++ {
				garbage = append(garbage, make([]byte, 16<<10))
				garbage[n][n] = byte(*(*byte)(unsafe.Add(block, n)))
				sums[worker] += uint64(garbage[n][n])
			}
			C.free(block)
		}()
	}
	group.Wait()
	fmt.Println(len(keys), keys[1000], total, sums)
}
