# Compile cache and a fast linker where the machine has them; neither changes what is built.
find_program(ALIQUOT_CCACHE ccache)
if(ALIQUOT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ALIQUOT_CCACHE})
endif()
find_program(ALIQUOT_MOLD mold)
if(ALIQUOT_MOLD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_link_options(-fuse-ld=mold)
endif()
# A torch translation unit takes over a gigabyte: two at a time.
set_property(GLOBAL PROPERTY JOB_POOLS torch=2)
