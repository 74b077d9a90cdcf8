/* Bugs that a sanitizer must find, to show that it works: tools/sanitize.py calls each in its own process. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Accesses a byte after a heap allocation. */
int behind_memory(int size) {
    volatile char *memory = calloc((size_t)size, 1);
    return memory[size];
}

/* Accesses a byte after a mapped file of one page. */
int behind_mapping(const char *path) {
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, 4096)) return -1;
    volatile char *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return mapped[4096];
}

/* Undefined behavior in C. */
int64_t shifted(int32_t term_id) { return (int64_t)term_id << 32; }
int32_t overflown(int32_t count) { return count + 0x7FFFFFFF; }
