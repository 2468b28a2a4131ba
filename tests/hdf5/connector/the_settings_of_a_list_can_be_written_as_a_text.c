#include "objects.h"

static char *text_of(hid_t connector, const char *text) {
    void *info = NULL;
    char *written = NULL;
    OK(H5VLconnector_str_to_info(text, connector, &info));
    OK(H5VLconnector_info_to_str(info, connector, &written));
    OK(H5VLfree_connector_info(connector, info));
    return written;
}

static bool is_written(hid_t connector, const char *text, const char *expected) {
    char *written = text_of(connector, text);
    bool is = strcmp(written, expected) == 0;
    OK(H5free_memory(written));
    return is;
}

static int order_of(hid_t connector, const char *one, const char *other) {
    void *first = NULL, *second = NULL;
    int order = 0;
    OK(H5VLconnector_str_to_info(one, connector, &first));
    OK(H5VLconnector_str_to_info(other, connector, &second));
    OK(H5VLcmp_connector_info(&order, connector, first, second));
    OK(H5VLfree_connector_info(connector, first));
    OK(H5VLfree_connector_info(connector, second));
    return order;
}

int main(void) {
    begin();
    hid_t connector = H5VLget_connector_id_by_name("penstock_async");
    OK(connector);
    CHECK(is_written(connector, "", "under_vol=0;under_info={}"));
    CHECK(is_written(connector, " threads=4 ", "under_vol=0;under_info={};threads=4"));
    const char *all =
        "under_vol=27022;under_info={under_vol=0;under_info={};copy=never};threads=4;implicit=1";
    CHECK(is_written(connector, all, all));
    /* A connector below is written by its number, whichever way it was named. */
    CHECK(is_written(connector, "under_vol=native", "under_vol=0;under_info={}"));
    const char *named = "under_vol=penstock_async;under_info={under_vol=0;under_info={}}";
    const char *numbered = "under_vol=27022;under_info={under_vol=0;under_info={}}";
    CHECK(is_written(connector, named, numbered));
    CHECK(order_of(connector, named, numbered) == 0);

    CHECK(order_of(connector, "threads=4", "under_vol=0;threads=4") == 0);
    CHECK(order_of(connector, "threads=4", "threads=5") < 0);
    CHECK(order_of(connector, "threads=5", "threads=4") > 0);
    CHECK(order_of(connector, "", "under_vol=27022;under_info={}") != 0);
    OK(H5VLclose(connector));
    return 0;
}
