# Writes every file below ROOT into one C++ source OUT as {name without .yaml, text}: the body of
# ebclr::ROOM::FUNCTION(), which HEADER declares.
file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/*.yaml)
list(SORT files)
set(text "#include \"${HEADER}\"\n\nnamespace ebclr::${ROOM} {\n\nconst std::vector<run::ShippedConfig>& ${FUNCTION}() {\n  static const std::vector<run::ShippedConfig> table = {\n")
foreach(file ${files})
  file(READ ${ROOT}/${file} content)
  string(REGEX REPLACE "\\.yaml$" "" name ${file})
  string(APPEND text "      {\"${name}\", R\"yaml(${content})yaml\"},\n")
endforeach()
string(APPEND text "  };\n  return table;\n}\n\n}  // namespace ebclr::${ROOM}\n")
file(WRITE ${OUT} "${text}")
