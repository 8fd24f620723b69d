#include "thread_group.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

namespace sluice::test {
namespace {

/// Messages between the threads of a group, and the first error of a thread.
struct Post {
  std::mutex lock;
  std::map<std::tuple<int, int, int>, std::deque<std::vector<std::byte>>> letters;
  std::optional<std::pair<int, Error>> failure;
};

std::atomic<int64_t> bytes_of_programs{0};
constexpr int kTagOfAgreement = 0;

class ThreadMessages final : public runtime::Messages {
 public:
  ThreadMessages(Post& post, int rank, int tag) : post_(post), rank_(rank), tag_(tag) {}

  void send(int to, std::span<const std::byte> bytes) override {
    if (tag_ != kTagOfAgreement) bytes_of_programs += static_cast<int64_t>(bytes.size());
    const std::lock_guard lock(post_.lock);
    post_.letters[{rank_, to, tag_}].emplace_back(bytes.begin(), bytes.end());
  }
  void receive(int from, std::span<std::byte> bytes) override {
    awaited_.emplace_back(from, bytes);
  }
  bool done() override {
    const std::lock_guard lock(post_.lock);
    while (!awaited_.empty()) {
      const auto& [from, bytes] = awaited_.front();
      auto& letters = post_.letters[{from, rank_, tag_}];
      if (letters.empty()) return false;
      SLUICE_CHECK(letters.front().size() == bytes.size());
      std::memcpy(bytes.data(), letters.front().data(), bytes.size());
      letters.pop_front();
      awaited_.pop_front();
    }
    return true;
  }

 private:
  Post& post_;
  int rank_;
  int tag_;
  std::deque<std::pair<int, std::span<std::byte>>> awaited_;
};

class ThreadGroup final : public runtime::ProcessGroup {
 public:
  ThreadGroup(std::shared_ptr<Post> post, int rank, int size)
      : post_(std::move(post)), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int usable_cores() const override { return 1; }
  std::unique_ptr<runtime::Messages> messages(int tag) override {
    return std::make_unique<ThreadMessages>(*post_, rank_, tag);
  }
  void check() const override {
    const std::lock_guard lock(post_->lock);
    if (!post_->failure) return;
    const auto& [rank, error] = *post_->failure;
    if (rank == rank_) throw Error(error);
    throw Error(error.kind(), fmt::format("process {}: {}", rank, error.what()));
  }
  bool fail(const Error& error) override {
    const std::lock_guard lock(post_->lock);
    if (!post_->failure) post_->failure.emplace(rank_, error);
    return post_->failure->first == rank_;
  }

 private:
  std::shared_ptr<Post> post_;
  int rank_;
  int size_;
};

}  // namespace

int64_t bytes_sent_by_programs() { return bytes_of_programs; }

void for_each_process(int processes,
                      const std::function<void(std::shared_ptr<runtime::ProcessGroup>)>& process) {
  const auto post = std::make_shared<Post>();
  std::vector<std::exception_ptr> errors(static_cast<size_t>(processes));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < processes; ++rank) {
    threads.emplace_back([&, rank] {
      const auto group = std::make_shared<ThreadGroup>(post, rank, processes);
      try {
        process(group);
      } catch (const Error& e) {
        group->fail(e);
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  const int first = post->failure ? post->failure->first : 0;
  if (errors[static_cast<size_t>(first)])
    std::rethrow_exception(errors[static_cast<size_t>(first)]);
}

}  // namespace sluice::test
