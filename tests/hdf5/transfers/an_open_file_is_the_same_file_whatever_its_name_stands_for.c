#include "../memory.h"

enum { COUNT = 3000001 };

/* Its name is another file's now, or no file's, and the folder is another one. */
static void check(void (*change)(void), const char *kept) {
    hid_t file = create_file("file.h5"), dataset = create_dataset(file, "x", COUNT, H5P_DEFAULT);
    CHECK(unlink("kept.h5") == 0 || errno == ENOENT);
    CHECK(link("file.h5", "kept.h5") == 0);
    change();
    int *these = values(COUNT, 1);
    void *memory = new_memory_with(these, COUNT * sizeof(int)), *found = new_memory(COUNT * 4);
    OK(write_whole(dataset, memory));
    OK(read_whole(dataset, found));
    CHECK(memory_holds(found, these, COUNT * sizeof(int)));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(sec2_finds_values(kept, "x", COUNT, 1));
    free_memory(found);
    free_memory(memory);
    free(these);
}

static void remove_it(void) { CHECK(unlink("file.h5") == 0); }

static void replace_it(void) {
    int other = open("other", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(other >= 0 && close(other) == 0 && rename("other", "file.h5") == 0);
}

static void change_folder(void) { CHECK(mkdir("folder", 0700) == 0 && chdir("folder") == 0); }

int main(void) {
    begin();
    check(remove_it, "kept.h5");
    check(replace_it, "kept.h5");
    CHECK(size_of_file("file.h5") == 0);
    check(change_folder, "../kept.h5");
    return 0;
}
