#include "../check.h"

int main(void) {
    make_file("data", 1);
    char *json = NULL;
    OK(penstock_describe("data", &json));
    CHECK(json[0] == '{' && json[strlen(json) - 1] == '}');
    CHECK(strstr(json, "\"file_system\"") != NULL);
    CHECK(strstr(json, "\"cufile\"") != NULL);
    penstock_string_free(json);
    OK(penstock_describe(NULL, &json));
    penstock_string_free(json);
    return 0;
}
