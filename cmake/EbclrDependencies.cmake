# Third-party libraries, all from Debian packages (tools/install-deps names them).
# An official libtorch (2.x, CUDA) is picked up with -DCMAKE_PREFIX_PATH=/path/to/libtorch.
if(NOT PROJECT_IS_TOP_LEVEL)
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)  # the project around us links torch through ebclr::ebclr
endif()
set(CMAKE_THREAD_PREFER_PTHREAD ON)
find_package(Threads REQUIRED)
if(EBCLR_FUZZ)
  add_library(OpenMP::OpenMP_CXX INTERFACE IMPORTED)  # one thread will do, and clang's OpenMP is a package of its own
else()
  find_package(OpenMP REQUIRED COMPONENTS CXX)
endif()
find_package(Torch CONFIG REQUIRED)
if(TORCH_CXX_FLAGS MATCHES "CXX11_ABI=0")
  message(FATAL_ERROR "libtorch in ${Torch_DIR} is built for the old C++ ABI, which no Debian library fits; "
                      "take the download named \"cxx11 ABI\"")
endif()
# Debian's torch runs on Debian's oneDNN; an official libtorch carries one of its own, which must not meet a second.
cmake_path(SET EBCLR_USR "/usr/lib")
cmake_path(IS_PREFIX EBCLR_USR "${Torch_DIR}" EBCLR_DEBIAN_TORCH)
find_package(CLI11 REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(fmt REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL REQUIRED)

# Flags of every target of ours; always linked PRIVATE, so that no user of the library gets them.
add_library(ebclr_flags INTERFACE)
target_compile_options(ebclr_flags INTERFACE -Wall -Wextra -Wno-unused-parameter -fno-math-errno)
if(EBCLR_LIBRARY)
  # Position independent and hidden throughout: the rooms end up in the program and in libebclr.so, whose public names are
  # marked in include/ebclr. (As an option, not as CMake's property, which would give programs -fPIE and so another
  # precompiled header.)
  target_compile_options(ebclr_flags INTERFACE -fPIC -fvisibility=hidden -fvisibility-inlines-hidden)
endif()
target_link_libraries(ebclr_flags INTERFACE Threads::Threads)
if(EBCLR_SANITIZE)
  set(sanitizers ${EBCLR_SANITIZE})
  # A number beyond every integer, such as 1e300 in a file, is no part of g++'s undefined behaviour unless asked for.
  if(EBCLR_SANITIZE MATCHES undefined)
    include(CheckCXXCompilerFlag)
    set(CMAKE_REQUIRED_LINK_OPTIONS -fsanitize=float-cast-overflow)
    check_cxx_compiler_flag(-fsanitize=float-cast-overflow EBCLR_FLOAT_CAST_OVERFLOW)
    unset(CMAKE_REQUIRED_LINK_OPTIONS)
    if(EBCLR_FLOAT_CAST_OVERFLOW)
      string(APPEND sanitizers ",float-cast-overflow")
    endif()
  endif()
  target_compile_options(ebclr_flags INTERFACE -fsanitize=${sanitizers} -fno-omit-frame-pointer)
  target_link_options(ebclr_flags INTERFACE -fsanitize=${sanitizers})
endif()
if(EBCLR_FUZZ)
  if(Torch_VERSION VERSION_LESS 2)  # tools/lint_vector.h says why clang can read torch's headers with it
    target_compile_options(ebclr_flags INTERFACE -include ${PROJECT_SOURCE_DIR}/tools/lint_vector.h)
  endif()
  target_compile_options(ebclr_flags INTERFACE -Wno-everything -fsanitize=fuzzer-no-link)
  if(EBCLR_FUZZ_SANITIZE)
    target_compile_options(ebclr_flags INTERFACE
      -fsanitize=${EBCLR_FUZZ_SANITIZE} -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
    target_link_options(ebclr_flags INTERFACE -fsanitize=${EBCLR_FUZZ_SANITIZE})
  endif()
endif()

# torch's headers cost 18 s per translation unit: they are precompiled once
# (target ebclr_pch) and every room that sees torch reuses that header.
add_library(ebclr_torch INTERFACE)
target_link_libraries(ebclr_torch INTERFACE OpenMP::OpenMP_CXX)
target_include_directories(ebclr_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
target_link_libraries(ebclr_torch INTERFACE ${TORCH_LIBRARIES} fmt::fmt)

find_program(CCACHE_PROGRAM ccache)
if(EBCLR_CCACHE AND CCACHE_PROGRAM AND NOT EBCLR_FUZZ)
  # ccache needs to be told that precompiled headers are welcome.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE_PROGRAM})
  target_compile_options(ebclr_flags INTERFACE -fpch-preprocess)
endif()

file(WRITE ${PROJECT_BINARY_DIR}/pch/pch.cpp "")
add_library(ebclr_pch STATIC ${PROJECT_BINARY_DIR}/pch/pch.cpp)
target_link_libraries(ebclr_pch PRIVATE ebclr_flags ebclr_torch)
target_include_directories(ebclr_pch PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_precompile_headers(ebclr_pch PRIVATE <torch/torch.h> <fmt/format.h> <string> <vector>)
if(EBCLR_UNITY)
  target_precompile_headers(ebclr_pch PRIVATE <nlohmann/json.hpp>)
endif()
