#include "sluice/runtime/process_group.h"

#include <numeric>
#include <thread>
#include <vector>

#include "sluice/base/hash.h"

namespace sluice::runtime {
namespace {

constexpr int kAgreementTag = 0;

}  // namespace

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

void Agreement::send_to_all(std::span<const std::byte> bytes) {
  for (int p = 0; p < size(); ++p) {
    if (p != rank()) messages_->send(p, bytes);
  }
}

void Agreement::broadcast(int root, std::span<std::byte> bytes) {
  if (size() == 1) return;
  if (root != rank()) {
    messages_->receive(root, bytes);
  } else {
    send_to_all(bytes);
  }
  finish("broadcasting data of one process");
}

void Agreement::share(std::span<std::byte> bytes, std::span<const int> owners, int64_t blocks,
                      const std::atomic<bool>* stop) {
  if (size() == 1) return;
  const size_t parts = owners.size();
  const size_t each = bytes.size() / parts / static_cast<size_t>(blocks);
  for (size_t block = 0; block < static_cast<size_t>(blocks); ++block) {
    for (size_t begin = 0, end = 0; begin < parts; begin = end) {
      while (end < parts && owners[end] == owners[begin]) ++end;
      const auto part = bytes.subspan((block * parts + begin) * each, (end - begin) * each);
      if (owners[begin] == rank()) {
        send_to_all(part);
      } else {
        messages_->receive(owners[begin], part);
      }
    }
  }
  finish("gathering data of all processes", stop);
}

void Agreement::gather(std::span<std::byte> bytes) {
  std::vector<int> owners(static_cast<size_t>(size()));
  std::iota(owners.begin(), owners.end(), 0);
  share(bytes, owners);
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
