// The data of process 1 ends while process 0 waits for a source that blocks. Both must end.
#include <condition_variable>
#include <mutex>

#include "sluice/comm/mpi_group.h"
#include "sluice/runtime/process_group.h"
#include "sluice/sluice.h"

namespace {

using namespace sluice;

class Source : public FeedSource {
 public:
  explicit Source(int rank) : rank_(rank) {}
  bool next(std::span<const ArrayView> fields) override {
    if (++made_ > 4) {
      if (rank_ == 1) return false;
      std::unique_lock hold(lock_);
      ends_.wait(hold, [&] { return cancelled_; });
    }
    *reinterpret_cast<float*>(fields[0].data) = 1;
    return true;
  }
  void cancel() override {
    const std::lock_guard hold(lock_);
    cancelled_ = true;
    ends_.notify_all();
  }

 private:
  const int rank_;
  int made_ = 0;
  bool cancelled_ = false;
  std::mutex lock_;
  std::condition_variable ends_;
};

}  // namespace

int main() {
  const auto group = comm::join_mpi();
  Ir ir(group->size());
  const Infeed in = ir.infeed("x", {{"x", f32_spec({})}});
  Graph& body = ir.create_empty_graph("body");
  const Tensor v = body.input(f32_spec({}), "v");
  body.add_output(v + ops::replicated_all_reduce(body.dequeue(in)[0]));
  Graph& main = ir.main_graph();
  const Tensor zero = main.constant(HostTensor(f32_spec({})), "zero");
  main.host_store(ops::repeat(main, body, 10, {zero})[0], "y");
  Session session(ir, {.device = cpu_device({.threads = 1}), .group = group});
  session.bind_feed(in, std::make_shared<Source>(group->rank()));
  try {
    session.run();
  } catch (const Error& e) {
    if (group->rank() == 0) fmt::print("process 0 heard: {}\n", e.what());
    return e.kind() == ErrorKind::kUsage ? 0 : 1;
  }
  return 1;
}
