#include "queue.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>

#include "code.h"
#include "commands.h"

namespace sluice::opaque {
namespace {

using runtime::DeviceAddress;

constexpr uint64_t kPoison = 0xbad0'bad0'bad0'bad0;

/// A small pool of events. Mark m uses event m mod size, so a question about an older mark is
/// answered for the newest mark of that event. The event of a mark that was not made holds an older
/// mark, or none, which passes.
class Events {
 public:
  explicit Events(int size) : positions_(static_cast<size_t>(size)) {}
  void set(int64_t mark, int64_t position) {
    event(mark).store(position, std::memory_order_relaxed);
  }
  /// Any thread may ask. Nothing orders it after set(): the caller must do that.
  int64_t position(int64_t mark) { return event(mark).load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t>& event(int64_t mark) {
    return positions_[static_cast<size_t>(mark) % positions_.size()];
  }
  std::vector<std::atomic<int64_t>> positions_;
};

// Returns the number of calls that return after an error.
int64_t first_lag(const Options& options, int queue) {
  std::mt19937_64 random(options.seed + static_cast<uint64_t>(queue));
  return std::uniform_int_distribution<int64_t>(0, options.error_lag)(random);
}

/// A launch with its own copy of the arguments.
struct CopiedLaunch {
  const Code* code = nullptr;
  Arguments arguments;
  std::vector<Touch> touches;
};

/// Launches of one queue.
struct OpaqueRecording final : runtime::Recording {
  const runtime::Queue* queue = nullptr;
  std::shared_ptr<std::vector<CopiedLaunch>> launches =
      std::make_shared<std::vector<CopiedLaunch>>();
};

class OpaqueQueue final : public runtime::Queue {
 public:
  explicit OpaqueQueue(std::shared_ptr<DeviceState> device)
      : device_(std::move(device)),
        family_(*device_->family),
        commands_(std::make_shared<CommandList>(device_)),
        index_(commands_->queue()),
        events_(family_.options.events),
        lag_(first_lag(family_.options, index_)) {
    if (!lazy()) thread_ = std::thread([this] { commands_->serve(); });
  }

  ~OpaqueQueue() override {
    const auto lock = family_.enter();
    wait_for_all();
    if (thread_.joinable()) {
      commands_->stop();
      thread_.join();
    }
    commands_->close();
    if (!device_->failed()) family_.races.know_all(index_);
  }

  void launch(const runtime::Launch& launch) override {
    const Call call(*this);
    call.body(
        [&] {
          const Code& code = code_of(launch.kernel);
          CopiedLaunch copied{&code, Arguments(launch), {}};
          std::fill(launch.operands.begin(), launch.operands.end(),
                    DeviceAddress::of_device(kPoison));
          std::fill(launch.scalars.begin(), launch.scalars.end(), static_cast<int64_t>(kPoison));
          copied.touches = code.touches(copied.arguments, device_->memory);
          if (recording_ != nullptr) {
            recording_->launches->push_back(std::move(copied));
            return;
          }
          enqueue("launch " + code.name(), copied.touches, [memory = &device_->memory, copied] {
            copied.code->run(copied.arguments, *memory);
          });
        },
        true);
  }

  void begin_recording() override {
    const Call call(*this);
    call.body([&] {
      recording_ = std::make_unique<OpaqueRecording>();
      recording_->queue = this;
    });
  }

  std::unique_ptr<runtime::Recording> end_recording() override {
    const Call call(*this);
    call.body(
        [&] {
          if (recording_ == nullptr)
            fail(ErrorKind::kInternal,
                 "opaque: begin_recording() must come before end_recording()");
        },
        true);
    ++family_.recordings;
    return std::move(recording_);
  }

  void replay(const runtime::Recording& recording) override {
    const Call call(*this);
    call.body([&] {
      const auto* const recorded = dynamic_cast<const OpaqueRecording*>(&recording);
      if (recorded == nullptr || recorded->queue != this)
        fail(ErrorKind::kInternal, "opaque: a queue must replay its own recordings");
      const std::weak_ptr<std::vector<CopiedLaunch>> launches = recorded->launches;
      for (size_t i = 0; i < recorded->launches->size(); ++i) {
        const CopiedLaunch& launch = (*recorded->launches)[i];
        enqueue("replayed launch " + launch.code->name(), launch.touches,
                [launches, i, memory = &device_->memory] {
                  const auto alive = launches.lock();
                  if (alive == nullptr)
                    fail(ErrorKind::kInternal, "opaque: a recording must live until it has run");
                  (*alive)[i].code->run((*alive)[i].arguments, *memory);
                });
      }
    });
  }

  void copy(DeviceAddress to, DeviceAddress from, int64_t bytes) override {
    const Call call(*this);
    call.body([&] {
      const Range a = range_of(to, bytes), b = range_of(from, bytes);
      if (a.begin < b.end && b.begin < a.end)
        fail(ErrorKind::kInternal, "opaque: the ranges of a copy must not overlap");
      enqueue_copy("copy", a, device_->memory.bytes_at(to, bytes), b,
                   device_->memory.bytes_at(from, bytes), bytes);
    });
  }

  void upload(DeviceAddress to, const std::byte* from, int64_t bytes) override {
    const Call call(*this);
    call.body([&] {
      device_->memory.check_pinned(from, bytes);
      enqueue_copy("upload", range_of(to, bytes), device_->memory.bytes_at(to, bytes),
                   range_of(from, bytes), from, bytes);
    });
  }

  void download(std::byte* to, DeviceAddress from, int64_t bytes) override {
    const Call call(*this);
    call.body([&] {
      device_->memory.check_pinned(to, bytes);
      enqueue_copy("download", range_of(to, bytes), to, range_of(from, bytes),
                   device_->memory.bytes_at(from, bytes), bytes);
    });
  }

  void copy_from(runtime::QueuedDevice& peer, DeviceAddress to, DeviceAddress from,
                 int64_t bytes) override {
    const Call call(*this);
    call.body([&] {
      DeviceState& source = state_of(peer);
      check_family(*source.family);
      enqueue_copy("copy from a peer", range_of(to, bytes), device_->memory.bytes_at(to, bytes),
                   range_of(from, bytes), source.memory.bytes_at(from, bytes), bytes, &source);
    });
  }

  int64_t mark() override {
    const Call call(*this);
    call.body([&] {
      ++marks_;
      push({.kind = Command::Action::kMark});
      family_.races.add_mark(index_, marks_, commands_->pushed());
      events_.set(marks_, commands_->pushed());
    });
    return marks_;
  }

  void wait(runtime::Queue& other, int64_t mark) override {
    const Call call(*this);
    call.body([&] {
      auto* const queue = dynamic_cast<OpaqueQueue*>(&other);
      if (queue == nullptr || mark < 1)
        fail(ErrorKind::kInternal, "opaque: a wait must have a mark of an opaque queue");
      check_family(queue->family_);
      const int64_t position = queue->events_.position(mark);
      family_.races.wait(index_, queue->index_, mark, position);
      push({.kind = Command::Action::kWait, .awaited = queue->commands_, .position = position});
    });
  }

  bool passed(int64_t mark) override {
    const Call call(*this);
    bool result = false;
    call.body([&] {
      const int64_t position = events_.position(mark);
      if (lazy() && !commands_->passed(position)) family_.run_one();
      result = commands_->passed(position);
      if (result) family_.races.know(index_, mark, position);
    });
    return result;
  }

  void drain() override {
    const Call call(*this);
    call.body([&] {
      if (!wait_for_all()) device_->rethrow();
      family_.races.know_all(index_);
    });
  }

  void check() override {
    const Call call(*this);
    call.body([] {});
  }
  int64_t begun() const override { return commands_->begun(); }

 private:
  /// A call of the interface. It throws the device's error if that is due.
  class Call {
   public:
    explicit Call(OpaqueQueue& queue) : queue_(queue), lock_(queue.family_.enter()) {
      if (queue.used_.exchange(true, std::memory_order_relaxed)) {
        const Error error(ErrorKind::kInternal, "opaque: two threads use one queue at a time");
        queue.device_->fail(error);
        throw error;
      }
      try {
        queue.device_->count_call();
        if (queue.device_->failed() && queue.lag_-- <= 0) queue.device_->rethrow();
      } catch (...) {
        queue.recording_.reset();
        end();
        throw;
      }
    }
    ~Call() {
      if (queue_.lazy()) queue_.family_.run_some();
      end();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    /// Calls f. Its error becomes the device's. Only some calls may come in a recording.
    template <typename F>
    void body(F&& f, bool in_recording = false) const {
      try {
        if (queue_.recording_ != nullptr && !in_recording)
          fail(ErrorKind::kInternal, "opaque: only launches may be recorded");
        f();
      } catch (const Error& error) {
        queue_.recording_.reset();
        queue_.device_->fail(error);
        throw;
      }
    }

   private:
    void end() { queue_.used_.store(false, std::memory_order_relaxed); }
    OpaqueQueue& queue_;
    std::unique_lock<std::mutex> lock_;
  };

  bool lazy() const { return family_.options.mode == Mode::kLazy; }

  void check_family(const Family& family) const {
    if (&family != &family_) {
      fail(ErrorKind::kInternal,
           "opaque: devices that exchange data must be opened by one runtime::Device");
    }
  }

  bool wait_for_all() {
    if (lazy() && !device_->failed()) {
      family_.run_until(
          [&] { return device_->failed() || commands_->passed(commands_->pushed()); });
    }
    return commands_->wait_for_all();
  }

  void push(Command command) {
    if (lazy()) family_.run_until([&] { return commands_->has_room(); });
    commands_->wait_for_room();
    commands_->push(std::move(command));
  }

  void enqueue(std::string name, std::span<const Touch> touches, std::function<void()> run) {
    ++numbered_;
    family_.races.add(index_, numbered_, name, touches);
    push({.kind = Command::Action::kWork,
          .number = numbered_,
          .name = std::move(name),
          .run = std::move(run)});
    family_.enqueued.fetch_add(1, std::memory_order_relaxed);
  }

  void enqueue_copy(std::string name, const Range& to, std::byte* to_bytes, const Range& from,
                    const std::byte* from_bytes, int64_t bytes, DeviceState* peer = nullptr) {
    const Touch touches[] = {{from, false}, {to, true}};
    enqueue(std::move(name), touches, [=] {
      if (peer != nullptr && peer->failed())
        fail(ErrorKind::kPeerLost, "opaque: a queue copies from a device that has failed");
      std::memcpy(to_bytes, from_bytes, static_cast<size_t>(bytes));
    });
  }

  const std::shared_ptr<DeviceState> device_;
  Family& family_;
  const std::shared_ptr<CommandList> commands_;
  const int index_;
  Events events_;
  int64_t numbered_ = 0;  ///< Launches and copies so far.
  int64_t marks_ = 0;
  int64_t lag_;  ///< Calls that still return after the device has failed.
  std::unique_ptr<OpaqueRecording> recording_;  ///< The one that is being made.
  std::atomic<bool> used_{false};
  std::thread thread_;
};

}  // namespace

std::unique_ptr<runtime::Queue> make_queue(const std::shared_ptr<DeviceState>& device) {
  return std::make_unique<OpaqueQueue>(device);
}

}  // namespace sluice::opaque
