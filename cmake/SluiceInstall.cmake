# Rules of `cmake --install`: libraries, headers, the tool, and the files of find_package(Sluice).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The models of the command line are not part of the package.
set(libraries ${SLUICE_LAYERS})
list(REMOVE_ITEM libraries sluice_models)
foreach(library ${libraries})
  if(NOT library STREQUAL "sluice")
    string(REPLACE "sluice_" "" layer ${library})
    set_target_properties(${library} PROPERTIES EXPORT_NAME ${layer})
  endif()
endforeach()
install(TARGETS ${libraries} EXPORT SluiceTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS sluice_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${PROJECT_SOURCE_DIR}/tools/completion/sluice.bash RENAME sluice
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${PROJECT_SOURCE_DIR}/tools/completion/_sluice
  DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)

# Headers that programs of users include, directly or indirectly. scripts/check_includes.py checks
# that the list is complete.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/installed_headers.txt headers)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
             ${CMAKE_CURRENT_LIST_DIR}/installed_headers.txt)
foreach(header ${headers})
  set(source ${PROJECT_SOURCE_DIR}/src/${header})
  if(NOT EXISTS ${source})
    set(source ${PROJECT_BINARY_DIR}/include/${header})  # Generated.
  endif()
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${source} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endforeach()

set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Sluice)
install(EXPORT SluiceTargets NAMESPACE Sluice:: DESTINATION ${config_folder})
# find_package(Sluice) works with a build folder, too: the Python package links its libraries.
export(TARGETS ${libraries} sluice_flags NAMESPACE Sluice::
       FILE ${PROJECT_BINARY_DIR}/SluiceTargets.cmake)
configure_file(${CMAKE_CURRENT_LIST_DIR}/FindPCRE2.cmake ${PROJECT_BINARY_DIR} COPYONLY)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/SluiceConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/SluiceConfig.cmake
                              INSTALL_DESTINATION ${config_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/SluiceConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/SluiceConfig.cmake
              ${PROJECT_BINARY_DIR}/SluiceConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/FindPCRE2.cmake
        DESTINATION ${config_folder})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
