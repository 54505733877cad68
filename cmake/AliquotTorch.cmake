# LibTorch: the one of CMAKE_PREFIX_PATH if given, else the wheel in .venv.
if(NOT CMAKE_PREFIX_PATH)
  file(GLOB ALIQUOT_WHEEL LIST_DIRECTORIES true ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
  if(ALIQUOT_WHEEL)
    list(GET ALIQUOT_WHEEL 0 CMAKE_PREFIX_PATH)
  endif()
endif()
find_package(Torch QUIET)
if(NOT Torch_FOUND)
  message(FATAL_ERROR "LibTorch not found. Run `make setup`, or name yours: cmake --preset release -DCMAKE_PREFIX_PATH=/path/to/libtorch")
endif()
message(STATUS "LibTorch ${Torch_VERSION} in ${TORCH_INSTALL_PREFIX}")

add_library(aliquot_torch INTERFACE)
add_library(Aliquot::torch ALIAS aliquot_torch)
target_link_libraries(aliquot_torch INTERFACE ${TORCH_LIBRARIES})
target_include_directories(aliquot_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
# at::RecordFunction has another layout without NDEBUG than the released libraries, so every build type defines it.
target_compile_definitions(aliquot_torch INTERFACE NDEBUG USE_DISTRIBUTED USE_C10D)
separate_arguments(ALIQUOT_TORCH_FLAGS UNIX_COMMAND "${TORCH_CXX_FLAGS}")
target_compile_options(aliquot_torch INTERFACE ${ALIQUOT_TORCH_FLAGS})

# fmt is the one inside torch's include folder, used header-only; nothing of torch is linked by it.
add_library(aliquot_fmt INTERFACE)
add_library(Aliquot::fmt ALIAS aliquot_fmt)
find_path(ALIQUOT_FMT_INCLUDE fmt/format.h PATHS ${TORCH_INCLUDE_DIRS} NO_DEFAULT_PATH REQUIRED)
target_include_directories(aliquot_fmt SYSTEM INTERFACE ${ALIQUOT_FMT_INCLUDE})
target_compile_definitions(aliquot_fmt INTERFACE FMT_HEADER_ONLY=1)
