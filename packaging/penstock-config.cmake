# Defines the imported target penstock::penstock. Everything is relative to this file, so that
# the package may be moved as a whole.
get_filename_component(_penstock_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET penstock::penstock)
  add_library(penstock::penstock SHARED IMPORTED)
  set_target_properties(penstock::penstock PROPERTIES
    IMPORTED_LOCATION "${_penstock_prefix}/lib/libpenstock.so.1"
    IMPORTED_SONAME "libpenstock.so.1"
    INTERFACE_INCLUDE_DIRECTORIES "${_penstock_prefix}/include")
endif()

unset(_penstock_prefix)
