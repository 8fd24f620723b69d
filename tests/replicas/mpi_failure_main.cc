// Process 2 of three fails while process 0 sends. Process 1 would receive only later, so it must
// not read the bytes that process 0 has already freed.
#include <chrono>
#include <thread>
#include <vector>

#include "sluice/comm/mpi_group.h"
#include "sluice/runtime/process_group.h"

int main() {
  using namespace sluice;
  const auto group = comm::join_mpi();
  try {
    if (group->rank() == 2) fail(ErrorKind::kIo, "the disk is full");
    if (group->rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
    std::vector<std::byte> bytes(size_t{1} << 26);  // Large enough to be unmapped when freed.
    runtime::Agreement(group).broadcast(0, bytes);
  } catch (const Error& e) {
    const bool tells = group->fail(e);
    std::this_thread::sleep_for(std::chrono::seconds(2));
    if (group->rank() == 0) fmt::print("process 0 lives and heard: {}\n", e.what());
    return tells == (group->rank() == 2) ? e.exit_code() : 1;
  }
  return 1;
}
