# Compiles the sources of each of HDF5's packages as one, in half of the time: most of what a compiler
# does with a source at -O0 is to read the same headers.
#
# CMake includes this after project(HDF5), and again at the end, when the target is there.
if(NOT TARGET hdf5-shared)
    # A call that is put off expands its variables when it happens.
    cmake_language(EVAL CODE "cmake_language(DEFER CALL include [[${CMAKE_CURRENT_LIST_FILE}]])")
    return()
endif()

# These define what others must not see, such as a macro for a header, or something of the same name.
set(alone
    "H5[A-Z]\\.c" # functions with _async, and macros of the same names
    "H5[A-Z0-9]+test\\.c" # for HDF5's own tests
    "H5FD.*\\.c" # drivers, of which some may see public headers only
    "H5O(attr|dtype|fill|linfo|pline|sdspace)\\.c" # macros for H5Oshared.h
    "H5(EAiblock|FSsection|Omessage|Tprecis|Zscaleoffset)\\.c"
)
string(JOIN "|" alone ${alone})

get_target_property(sources hdf5-shared SOURCES)
get_target_property(folder hdf5-shared SOURCE_DIR)
foreach(source IN LISTS sources)
    cmake_path(GET source FILENAME name)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${folder}" OUTPUT_VARIABLE path)
    if(name MATCHES "^(${alone})$" OR NOT name MATCHES "^(H5[A-Z0-9]+).*\\.c$")
        continue()
    endif()
    set(package ${CMAKE_MATCH_1})
    # Macros of this header say which package a function belongs to; some sources have none.
    file(STRINGS "${path}" module REGEX "^#include \"H5[A-Za-z0-9]*module\\.h\"")
    string(REGEX REPLACE "[^\"]*\"(.*)module\\.h\".*" "_\\1" module "${module}")
    set_source_files_properties(
        "${path}" TARGET_DIRECTORY hdf5-shared PROPERTIES UNITY_GROUP ${package}${module}
    )
endforeach()
set_target_properties(hdf5-shared PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)

# HDF5 asks for a hundred kinds of warnings. Even where none is printed, looking for them takes a tenth of the time.
get_target_property(options hdf5-shared COMPILE_OPTIONS)
list(FILTER options EXCLUDE REGEX "^-W")
set_target_properties(hdf5-shared PROPERTIES COMPILE_OPTIONS "${options}")
