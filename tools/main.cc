#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <system_error>

#include "sluice/base/error.h"
#include "sluice/base/sys.h"
#include "sluice/comm/mpi_group.h"
#include "sluice/runtime/process_group.h"
#include "tools/command_line.h"

int main(int argc, char** argv) {
  std::shared_ptr<sluice::runtime::ProcessGroup> group;
  const auto report = [&](const sluice::Error& e) {
    if (group == nullptr || group->fail(e))
      sluice::sys::print_stderr("error ({}): {}\n", sluice::to_string(e.kind()), e.what());
    return e.exit_code();
  };
  try {
    sluice::sys::open_standard_descriptors();
    std::signal(SIGXFSZ, SIG_IGN);  // A file at its size limit is an error of the write, EFBIG.
    if (!sluice::tool::is_single_process(argc, argv)) group = sluice::comm::join_mpi();
    const int code = sluice::tool::run_command_line(argc, argv, group);
    // Flush here so that a full disk is reported as an error.
    if (std::fflush(stdout) != 0)
      throw std::system_error(errno, std::generic_category(), "cannot write to stdout");
    return code;
  } catch (const sluice::Error& e) {
    return report(e);
  } catch (const std::system_error& e) {
    return report({sluice::ErrorKind::kIo, e.what()});
  } catch (const std::exception& e) {
    return report({sluice::ErrorKind::kInternal, e.what()});
  }
}
