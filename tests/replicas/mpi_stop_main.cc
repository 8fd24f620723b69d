// Another thread of process 1 stops its run. Process 0 must name it and end too.
#include <thread>

#include "sluice/comm/mpi_group.h"
#include "sluice/runtime/process_group.h"
#include "sluice/sluice.h"

int main() {
  using namespace sluice;
  const auto group = comm::join_mpi();
  Ir ir(group->size());
  Graph& main = ir.main_graph();
  Graph& body = ir.create_graph(
      "turn", [](Graph&, Tensor x) { return ops::replicated_all_reduce(x) * 0.4; },
      f32_spec({100}));
  const Tensor x = main.variable(f32_spec({100}), Initializer::constant(1), "x");
  main.host_store(ops::repeat(main, body, 1'000'000'000, {x})[0], "y");
  Session session(ir, {.device = cpu_device({.threads = 1}),
                       .group = group,
                       .proof = SessionOptions::Proof::kTrust});
  std::thread stopper([&] {
    while (group->rank() == 1 && !session.stop()) std::this_thread::yield();
  });
  int code = 1;
  try {
    session.run();
  } catch (const Error& e) {
    if (group->rank() == 0) fmt::print("process 0 heard: {}\n", e.what());
    code = e.kind() == ErrorKind::kStopped ? 0 : 1;
  }
  stopper.join();
  return code;
}
