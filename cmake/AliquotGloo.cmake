# c10d's Gloo class wants Gloo's headers, which no torch wheel ships; the distribution's are older. Whether they fit is found
# out by compiling and running a small program, once per build folder.
if(NOT DEFINED ALIQUOT_HAS_GLOO)
  find_path(ALIQUOT_GLOO_INCLUDE gloo/algorithm.h)
  set(fits FALSE)
  if(ALIQUOT_GLOO_INCLUDE)
    # As files: the probe's project does not know our targets.
    set(libraries)
    foreach(name torch torch_cpu c10)
      list(APPEND libraries ${TORCH_INSTALL_PREFIX}/lib/lib${name}.so)
    endforeach()
    separate_arguments(flags UNIX_COMMAND "${TORCH_CXX_FLAGS}")
    try_run(ran compiled ${CMAKE_BINARY_DIR}/gloo_probe ${CMAKE_SOURCE_DIR}/cmake/gloo_probe.cpp
      CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${TORCH_INCLUDE_DIRS};${ALIQUOT_GLOO_INCLUDE}" -DCMAKE_BUILD_TYPE=Debug
      COMPILE_DEFINITIONS -DUSE_DISTRIBUTED -DUSE_C10D -DUSE_C10D_GLOO -DNDEBUG ${flags}
      LINK_LIBRARIES ${libraries} -pthread
      CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON
      COMPILE_OUTPUT_VARIABLE output)
    if(compiled AND ran EQUAL 0)
      set(fits TRUE)
    elseif(NOT compiled)
      message(STATUS "Gloo: the headers in ${ALIQUOT_GLOO_INCLUDE} do not compile with this torch; built without")
      file(WRITE ${CMAKE_BINARY_DIR}/gloo_probe.log "${output}")
    else()
      message(STATUS "Gloo: two ranks could not talk (exit ${ran}); built without")
    endif()
  else()
    message(STATUS "Gloo: headers not found (Debian: libgloo-dev); built without, ranks must share a host")
  endif()
  set(ALIQUOT_HAS_GLOO ${fits} CACHE BOOL "Gloo between hosts")
endif()
