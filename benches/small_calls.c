/* Loops over small calls of HDF5. A call from Python takes longer than what is measured. The functions of
 * HDF5 come from the library that Python has loaded, so that no headers are needed. Each loop returns a
 * negative number if a call has failed. */
#include <stdint.h>
#include <stdio.h>

typedef int64_t hid_t;

typedef int select_function(hid_t space, int how, const uint64_t *start, const uint64_t *stride,
                            const uint64_t *count, const uint64_t *block);
typedef int transfer_function(hid_t dataset, hid_t type, hid_t memory, hid_t file, hid_t list,
                              void *address);
typedef int transfer_async_function(const char *source, const char *function, unsigned line,
                                    hid_t dataset, hid_t type, hid_t memory, hid_t file, hid_t list,
                                    void *address, hid_t events);
typedef hid_t create_function(hid_t file, const char *name, hid_t type, hid_t space, hid_t link,
                              hid_t creation, hid_t access);
typedef int close_async_function(const char *source, const char *function, unsigned line,
                                 hid_t dataset, hid_t events);

struct rows {
    hid_t dataset, type, memory, file;
    uint64_t count, length;
    char *from;
    uint64_t element;
};

/* One row after the other, by plain calls. */
int transfer_rows(select_function *choose, transfer_function *transfer, const struct rows *rows) {
    int status = 0;
    for (uint64_t i = 0; i < rows->count && status >= 0; i++) {
        uint64_t start = i * rows->length;
        status = choose(rows->file, 0, &start, NULL, &rows->length, NULL);
        if (status < 0) break;
        status = transfer(rows->dataset, rows->type, rows->memory, rows->file, 0,
                          rows->from + start * rows->element);
    }
    return status;
}

/* The same with an event set. */
int transfer_rows_async(select_function *choose, transfer_async_function *transfer,
                        const struct rows *rows, hid_t events) {
    int status = 0;
    for (uint64_t i = 0; i < rows->count && status >= 0; i++) {
        uint64_t start = i * rows->length;
        status = choose(rows->file, 0, &start, NULL, &rows->length, NULL);
        if (status < 0) break;
        status = transfer(__FILE__, __func__, __LINE__, rows->dataset, rows->type, rows->memory,
                          rows->file, 0, rows->from + start * rows->element, events);
    }
    return status;
}

/* A dataset for each row: made, written and closed with an event set. */
int write_datasets(create_function *create, transfer_async_function *write,
                   close_async_function *close, hid_t file, const struct rows *rows, hid_t events) {
    char name[32];
    for (uint64_t i = 0; i < rows->count; i++) {
        snprintf(name, sizeof name, "%llu", (unsigned long long)i);
        hid_t dataset = create(file, name, rows->type, rows->memory, 0, 0, 0);
        if (dataset < 0) return -1;
        void *from = rows->from + i * rows->length * rows->element;
        int status = write(__FILE__, __func__, __LINE__, dataset, rows->type, 0, 0, 0, from, events);
        if (close(__FILE__, __func__, __LINE__, dataset, events) < 0 || status < 0) return -1;
    }
    return 0;
}
