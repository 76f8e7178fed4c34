# Writes OUT, a header that names the commit being built; left alone when nothing changed, so nothing is rebuilt.
execute_process(COMMAND git -C ${ROOT} describe --always --dirty --exclude=* OUTPUT_VARIABLE commit
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR NOT commit)
  set(commit "unknown")
endif()
set(text "#pragma once\n\nnamespace ebclr::cli {\n\n/// The commit that was built.\ninline constexpr const char* kCommit = \"${commit}\";\n\n}  // namespace ebclr::cli\n")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT "${before}" STREQUAL "${text}")
  file(WRITE ${OUT} "${text}")
endif()
