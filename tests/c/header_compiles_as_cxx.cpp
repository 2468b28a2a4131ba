/* The header's types, macros and functions are usable from C++17 with all warnings on. */
#include <penstock.h>

#include <cstring>

int main() {
    penstock_options options = PENSTOCK_OPTIONS_INIT;
    penstock_report report = PENSTOCK_REPORT_INIT;
    const bool right = options.struct_size == sizeof options && report.struct_size == sizeof report &&
                       std::strlen(report.note) == 0 &&
                       penstock_api_version() == PENSTOCK_API_VERSION;
    return right ? 0 : 1;
}
