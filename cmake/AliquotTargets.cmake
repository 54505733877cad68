# Flags of our own code. -ffp-contract=off: a fused multiply-add happens only where the source says so
# [Note: arithmetic, aliquot/reduce/arithmetic.md].
add_library(aliquot_options INTERFACE)
target_compile_options(aliquot_options INTERFACE -Wall -Wextra -Werror -ffp-contract=off)
target_include_directories(aliquot_options INTERFACE ${CMAKE_SOURCE_DIR})
find_package(Threads REQUIRED)
target_link_libraries(aliquot_options INTERFACE Threads::Threads)

# aliquot_library(folder SOURCES … LINK … [TORCH]): the static library aliquot_<folder>.
# TORCH says that the folder uses LibTorch; without it only bytes and spans are known there.
function(aliquot_library folder)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;LINK" ${ARGN})
  add_library(aliquot_${folder} STATIC ${ARG_SOURCES})
  target_link_libraries(aliquot_${folder} PUBLIC aliquot_options Aliquot::fmt ${ARG_LINK})
  if(ARG_TORCH)
    target_link_libraries(aliquot_${folder} PUBLIC Aliquot::torch)
    set_target_properties(aliquot_${folder} PROPERTIES JOB_POOL_COMPILE torch)
  endif()
endfunction()

# aliquot_test(name SOURCES … LINK … [TORCH] [LABELS …]): a GoogleTest program whose tests are found by ctest.
function(aliquot_test name)
  cmake_parse_arguments(ARG "TORCH" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE aliquot_options Aliquot::fmt ${ARG_LINK} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE ALIQUOT_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/golden")
  if(ARG_TORCH)
    target_link_libraries(${name} PRIVATE Aliquot::torch)
    set_target_properties(${name} PROPERTIES JOB_POOL_COMPILE torch)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  # One process per program: a LibTorch start costs a quarter of a second, more than most tests.
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}"
    ENVIRONMENT "ALIQUOT_BIN=${CMAKE_BINARY_DIR}/bin;ALIQUOT_SOURCE=${CMAKE_SOURCE_DIR}")
endfunction()
