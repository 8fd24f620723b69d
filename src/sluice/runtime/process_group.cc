#include "sluice/runtime/process_group.h"

#include <thread>
#include <vector>

#include "sluice/base/hash.h"
#include "sluice/base/numbers/slices.h"

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
  const Slices parts(bytes, blocks * std::ssize(owners));
  for (int64_t block = 0; block < blocks; ++block) {
    for (auto begin = owners.begin(), end = begin; begin != owners.end(); begin = end) {
      while (end != owners.end() && *end == *begin) ++end;
      const auto part =
          parts.range(block * std::ssize(owners) + (begin - owners.begin()), end - begin);
      if (*begin == rank()) {
        send_to_all(part);
      } else {
        messages_->receive(*begin, part);
      }
    }
  }
  finish("gathering data of all processes", stop);
}

void Agreement::gather(std::span<std::byte> bytes) {
  std::vector<int> owners;
  for (int r = 0; r < size(); ++r) owners.push_back(r);
  share(bytes, owners);
}

bool Agreement::any(bool value) {
  if (size() == 1) return value;
  for (const std::byte b : gathered(std::vector{std::byte{value}}))
    value = value || b != std::byte{0};
  return value;
}

void Agreement::require_same(std::string_view what, std::string_view text) {
  if (size() == 1) return;
  const std::vector<uint64_t> all = gathered(std::vector{hash64(text)});
  for (size_t p = 1; p < all.size(); ++p) {
    require(all[p] == all[0],
            "processes 0 and {} have different {} ({:016x} and {:016x}): all must run one program "
            "with the same options",
            p, what, all[0], all[p]);
  }
}

}  // namespace sluice::runtime
