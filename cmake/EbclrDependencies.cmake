# Third-party libraries, all from Debian packages (tools/install-deps names them).
# An official libtorch (2.x, CUDA) is picked up with -DCMAKE_PREFIX_PATH=/path/to/libtorch.
set(CMAKE_THREAD_PREFER_PTHREAD ON)
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
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
find_package(spdlog REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL REQUIRED)

# Flags of every target of ours.
add_library(ebclr_flags INTERFACE)
target_compile_options(ebclr_flags INTERFACE -Wall -Wextra -Wno-unused-parameter -fno-math-errno)
target_include_directories(ebclr_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(ebclr_flags INTERFACE Threads::Threads)
if(EBCLR_SANITIZE)
  target_compile_options(ebclr_flags INTERFACE -fsanitize=${EBCLR_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(ebclr_flags INTERFACE -fsanitize=${EBCLR_SANITIZE})
endif()

# torch's headers cost 18 s per translation unit: they are precompiled once
# (target ebclr_pch) and every room that sees torch reuses that header.
add_library(ebclr_torch INTERFACE)
target_link_libraries(ebclr_torch INTERFACE ebclr_flags OpenMP::OpenMP_CXX)
target_include_directories(ebclr_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
target_link_libraries(ebclr_torch INTERFACE ${TORCH_LIBRARIES} fmt::fmt)

find_program(CCACHE_PROGRAM ccache)
if(EBCLR_CCACHE AND CCACHE_PROGRAM)
  # ccache needs to be told that precompiled headers are welcome.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE_PROGRAM})
  target_compile_options(ebclr_flags INTERFACE -fpch-preprocess)
endif()

file(WRITE ${CMAKE_BINARY_DIR}/pch/pch.cpp "")
add_library(ebclr_pch STATIC ${CMAKE_BINARY_DIR}/pch/pch.cpp)
target_link_libraries(ebclr_pch PUBLIC ebclr_torch)
target_precompile_headers(ebclr_pch PRIVATE <torch/torch.h> <fmt/format.h> <string> <vector>)
if(EBCLR_UNITY)
  target_precompile_headers(ebclr_pch PRIVATE <nlohmann/json.hpp>)
endif()
