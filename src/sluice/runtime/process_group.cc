#include "sluice/runtime/process_group.h"

#include <thread>
#include <vector>

#include "sluice/base/hash.h"

namespace sluice::runtime {
namespace {

constexpr int kAgreementTag = 0;

}  // namespace

ReplicaRange replicas_of_process(int replicas, const std::shared_ptr<ProcessGroup>& group) {
  if (group == nullptr) return {0, replicas};
  const int size = group->size();
  require(replicas % size == 0, "replicas: must be a multiple of the {} processes, got {}", size,
          replicas);
  const int each = replicas / size;
  return {group->rank() * each, each};
}

Error stop_error() {
  return Error(ErrorKind::kStopped,
               "run: stopped by a call of stop(); variables hold what this run has left");
}

Agreement::Agreement(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {
  if (size() > 1) messages_ = group_->messages(kAgreementTag);
}

void Agreement::finish(std::string_view doing, const std::atomic<bool>* stop) {
  try {
    while (!messages_->done()) {
      group_->check();
      if (stop != nullptr && stop->load()) throw stop_error();
      std::this_thread::yield();
    }
  } catch (Error& e) {
    // After an error the caller may free its bytes, so stop all messages.
    group_->fail(e.note(doing));
    throw;
  }
}

void Agreement::broadcast(int root, std::span<std::byte> bytes) {
  if (size() == 1) return;
  if (root != rank()) {
    messages_->receive(root, bytes);
  } else {
    for (int p = 0; p < size(); ++p) {
      if (p != root) messages_->send(p, bytes);
    }
  }
  finish("broadcasting data of one process");
}

void Agreement::gather(std::span<std::byte> bytes, int64_t blocks, const std::atomic<bool>* stop) {
  if (size() == 1) return;
  const auto processes = static_cast<size_t>(size());
  const size_t each = bytes.size() / processes / static_cast<size_t>(blocks);
  for (size_t block = 0; block < static_cast<size_t>(blocks); ++block) {
    const auto part = [&](int p) {
      return bytes.subspan((block * processes + static_cast<size_t>(p)) * each, each);
    };
    for (int p = 0; p < size(); ++p) {
      if (p == rank()) continue;
      messages_->send(p, part(rank()));
      messages_->receive(p, part(p));
    }
  }
  finish("gathering data of all processes", stop);
}

bool Agreement::any(bool value) {
  if (size() == 1) return value;
  std::vector<std::byte> all(static_cast<size_t>(size()));
  all[static_cast<size_t>(rank())] = std::byte{value};
  gather(all);
  for (const std::byte b : all) value = value || b != std::byte{0};
  return value;
}

void Agreement::require_same(std::string_view what, std::string_view text) {
  if (size() == 1) return;
  std::vector<uint64_t> all(static_cast<size_t>(size()));
  all[static_cast<size_t>(rank())] = hash64(text);
  gather(std::as_writable_bytes(std::span(all)));
  for (size_t p = 1; p < all.size(); ++p) {
    require(all[p] == all[0],
            "processes 0 and {} have different {} ({:016x} and {:016x}): all must run one program "
            "with the same options",
            p, what, all[0], all[p]);
  }
}

}  // namespace sluice::runtime
