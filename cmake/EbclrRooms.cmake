# With EBCLR_UNITY a room's sources are compiled a few at a time: the precompiled header is loaded (5 s) and the
# inline code of torch and gtest compiled once per batch. A source with flags of its own stays alone.
function(ebclr_unity target batch)
  if(EBCLR_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
    # A type of an unnamed namespace looks to g++ as if it were in a header.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()

# For code whose speed nobody feels (tests, the command line): most of its compile time is optimisation.
function(ebclr_cold target)
  if(EBCLR_UNITY)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
    # g++ 13 and later refuse a precompiled header made at -O3 unless what -O1 leaves out of the target's options is named.
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13
       AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
      target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-munroll-only-small-loops;-mvzeroupper>)
    endif()
  endif()
endfunction()

# g++ 13 and later warn falsely about torch's own inline code (vector<bool> in autograd).
function(ebclr_torch_warnings target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-stringop-overflow)
  endif()
endfunction()

# ebclr_room(NAME x [TORCH] [COLD] SOURCES ... [DEPS rooms...] [LIBS libraries...])
# One static library per folder of src/. TORCH: the room sees libtorch. COLD: it is little optimised.
function(ebclr_room)
  cmake_parse_arguments(R "TORCH;COLD" "NAME" "SOURCES;DEPS;LIBS" ${ARGN})
  add_library(ebclr_${R_NAME} STATIC ${R_SOURCES})
  target_link_libraries(ebclr_${R_NAME} PRIVATE ebclr_flags)
  target_include_directories(ebclr_${R_NAME} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  foreach(dep ${R_DEPS})
    target_link_libraries(ebclr_${R_NAME} PUBLIC ebclr_${dep})
  endforeach()
  target_link_libraries(ebclr_${R_NAME} PUBLIC ${R_LIBS})
  if(R_TORCH)
    target_link_libraries(ebclr_${R_NAME} PUBLIC ebclr_torch)
    target_precompile_headers(ebclr_${R_NAME} REUSE_FROM ebclr_pch)
    ebclr_torch_warnings(ebclr_${R_NAME})
    ebclr_unity(ebclr_${R_NAME} 6)
  endif()
  if(R_COLD)
    ebclr_cold(ebclr_${R_NAME})
  endif()
endfunction()

# ebclr_test(NAME x [TORCH] SOURCES ... DEPS rooms... [LIBS ...]): one test program per room.
function(ebclr_test)
  cmake_parse_arguments(T "TORCH" "NAME" "SOURCES;DEPS;LIBS" ${ARGN})
  add_executable(${T_NAME}_test ${T_SOURCES})
  foreach(dep ${T_DEPS})
    target_link_libraries(${T_NAME}_test PRIVATE ebclr_${dep})
  endforeach()
  target_link_libraries(${T_NAME}_test PRIVATE ${T_LIBS} GTest::gmock GTest::gtest_main ebclr_flags)
  target_compile_definitions(${T_NAME}_test PRIVATE EBCLR_GOLDEN_DIR="${PROJECT_SOURCE_DIR}/tests/golden")
  target_include_directories(${T_NAME}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  # g++ 12 warns falsely about vector::insert inlined into tests.
  target_compile_options(${T_NAME}_test PRIVATE -Wno-array-bounds -Wno-stringop-overflow)
  if(T_TORCH)
    target_link_libraries(${T_NAME}_test PRIVATE ebclr_torch)
    target_precompile_headers(${T_NAME}_test REUSE_FROM ebclr_pch)
    ebclr_unity(${T_NAME}_test 6)
  endif()
  ebclr_cold(${T_NAME}_test)
  add_test(NAME ${T_NAME} COMMAND ${T_NAME}_test)
  set_tests_properties(${T_NAME} PROPERTIES TIMEOUT 1200)
endfunction()

# ebclr_embed(NAME x ROOM r FOLDER f): the YAML files below FOLDER become ebclr::r::x() in x.cpp of the room's build folder;
# HEADER declares it. Sets ${NAME}_SOURCE to that file.
function(ebclr_embed)
  cmake_parse_arguments(E "" "NAME;ROOM;FOLDER;HEADER" "" ${ARGN})
  set(script ${PROJECT_SOURCE_DIR}/cmake/EmbedConfigs.cmake)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/${E_NAME}.cpp)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${E_FOLDER}/*.yaml)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DROOT=${E_FOLDER} -DROOM=${E_ROOM} -DFUNCTION=${E_NAME} -DHEADER=${E_HEADER} -P ${script}
    DEPENDS ${files} ${script} VERBATIM)
  set(${E_NAME}_SOURCE ${out} PARENT_SCOPE)
endfunction()
