# `cmake --install`: libraries, headers, the tool, and what find_package(Sluice) reads.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

foreach(library ${SLUICE_LAYERS})
  if(NOT library STREQUAL "sluice")
    string(REPLACE "sluice_" "" layer ${library})
    set_target_properties(${library} PROPERTIES EXPORT_NAME ${layer})
  endif()
endforeach()
install(TARGETS ${SLUICE_LAYERS} EXPORT SluiceTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS sluice_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

# Headers that only tests include stay behind.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/sluice ${PROJECT_BINARY_DIR}/include/sluice
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h"
        REGEX "/(test_[a-z_]*|[a-z_]*_test_[a-z_]*|gradient_check|guarded_buffer)\\.h$" EXCLUDE)

set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Sluice)
install(EXPORT SluiceTargets NAMESPACE Sluice:: DESTINATION ${config_folder})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/SluiceConfig.cmake.in ${PROJECT_BINARY_DIR}/SluiceConfig.cmake
                              INSTALL_DESTINATION ${config_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/SluiceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/SluiceConfig.cmake ${PROJECT_BINARY_DIR}/SluiceConfigVersion.cmake
        DESTINATION ${config_folder})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
