/* What AddressSanitizer has to find: options that are shorter than they say. */
#include <penstock.h>
#include <stdlib.h>

int main(void) {
    penstock_options *options = malloc(sizeof *options - 8);
    if (options == NULL) return 1;
    options->struct_size = sizeof *options;
    return penstock_options_parse("threads=2", options);
}
