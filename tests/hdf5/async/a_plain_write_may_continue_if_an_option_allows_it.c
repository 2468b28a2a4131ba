#include "events.h"

/* The call returns while it is held; reading, flushing and closing come after it. */
int main(void) {
    begin_with("implicit=1");
    hid_t file = make_file("file.h5"), dataset = create_dataset(file, "x", MANY, H5P_DEFAULT);
    const size_t bytes = MANY * sizeof(int);
    int *one = values(MANY, 1), *two = values(MANY, 2);
    void *memory = new_memory_with(one, bytes), *found = new_memory(bytes);
    hold();
    OK(write_whole(dataset, memory));
    wait_for_held_call();
    copy_memory(memory, two, bytes);
    let_go_on_soon();
    OK(read_whole(dataset, found));
    CHECK(memory_has_values(found, MANY, 1));

    hold();
    OK(write_whole(dataset, memory));
    wait_for_held_call();
    free_memory(memory);
    let_go_on_soon();
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(file_has_values("file.h5", "x", MANY, 2));
    free_memory(found);
    free(one);
    free(two);
    return 0;
}
