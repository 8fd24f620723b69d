#include "sluice/runtime/streams/feeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace sluice::runtime {
namespace {

constexpr std::chrono::microseconds kTurn{1000};

std::string name_of_stream(const exe::Executable& e, const exe::FeedRing& ring) {
  return e.streams[static_cast<size_t>(ring.stream)].name;
}

}  // namespace

void FeedEvents::notify() {
  count_.fetch_add(1);
  if (sleepers_.load() == 0) return;
  const std::lock_guard lock(lock_);
  wake_.notify_all();
}

void FeedEvents::await(uint32_t seen, std::chrono::microseconds time) {
  std::unique_lock lock(lock_);
  sleepers_.fetch_add(1);
  wake_.wait_for(lock, time, [&] { return count_.load() != seen; });
  sleepers_.fetch_sub(1);
}

bool FeedPort::ready() {
  const int64_t element = used_.load(std::memory_order_relaxed);
  const int64_t moved = feed_.moved_.load(std::memory_order_acquire);
  const bool is_ready = feed_.plan_.input ? moved > element : element - moved < ring_.slots;
  if (!is_ready) [[unlikely]]
    return wait(element);
  if (waits_) {
    waits_ = false;
    feed_.shared_.waiting.fetch_sub(1);
  }
  return true;
}

bool FeedPort::wait(int64_t element) {
  if (!waits_) {
    waits_ = true;
    since_ = std::chrono::steady_clock::now();
    feed_.shared_.waiting.fetch_add(1);
  }
  feed_.check(element, *this, since_);
  return false;
}

void FeedPort::done() {
  used_.store(used_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  feed_.rouse();
}

Feed::Feed(const exe::Executable& executable, const exe::Feed& plan, const Placement& placement,
           Shared& shared)
    : executable_(executable),
      plan_(plan),
      replicas_(executable.replicas),
      exits_(exe::has_exits(executable)),
      shared_(shared) {
  std::set<int> processes;
  for (int r = 0; r < replicas_; ++r) {
    for (const exe::FeedRing& ring : plan.rings)
      processes.insert(placement.process_of_stream(r, ring.stream));
  }
  require(
      plan.input || processes.size() <= 1,
      "outfeed '{}': all its fields must belong to one process, got processes {}; store them on "
      "one device, or use output streams",
      plan.name, fmt::join(processes, ", "));
  ports_.resize(static_cast<size_t>(replicas_) * plan.rings.size());
  for (const exe::FeedRing& ring : plan.rings) {
    const TensorSpec& spec = executable.streams[static_cast<size_t>(ring.stream)].spec;
    in_.emplace_back(spec, nullptr);
    out_.emplace_back(spec, nullptr);
  }
  scratch_.resize(plan.rings.size());
}

Feed::~Feed() { close(); }

FeedPort* Feed::add_port(int replica, size_t field, std::byte* arena) {
  auto& port = ports_[static_cast<size_t>(replica) * plan_.rings.size() + field];
  port = std::make_unique<FeedPort>(*this, plan_.rings[field], arena);
  own_.push_back(port.get());
  return port.get();
}

void Feed::add_scratch() {
  for (size_t p = 0; p < ports_.size() && has_ports(); ++p) {
    const size_t field = p % plan_.rings.size();
    if (ports_[p] == nullptr) scratch_[field].resize(static_cast<size_t>(in_[field].spec.bytes()));
  }
}

std::string Feed::field_name(const exe::FeedRing& ring) const {
  const std::string name = name_of_stream(executable_, ring);
  return name.starts_with(plan_.name + ".") ? name.substr(plan_.name.size() + 1) : name;
}

FeedLayout Feed::layout() const {
  FeedLayout layout{plan_.name, {}, replicas_};
  for (size_t f = 0; f < plan_.rings.size(); ++f)
    layout.fields.push_back({field_name(plan_.rings[f]), in_[f].spec});
  return layout;
}

template <typename End>
void Feed::replace(std::shared_ptr<End>& bound, std::shared_ptr<End> end) {
  require(thread_.get_id() != std::this_thread::get_id(),
          "bind_feed: the source or sink of feed '{}' must not bind its own feed", plan_.name);
  // An object that is bound again must not be in use during open(), and cancel() must not follow.
  if (end == bound) {
    close();
    bound.reset();
  }
  end->open(layout());
  close();
  bound = std::move(end);
  start_thread();
}

void Feed::bind(std::shared_ptr<FeedSource> source) { replace(source_, std::move(source)); }
void Feed::bind(std::shared_ptr<FeedSink> sink) { replace(sink_, std::move(sink)); }

void Feed::start_thread() {
  quits_ = active_ = ended_ = failed_ = reported_ = false;
  error_.reset();
  moved_ = elements_ = 0;
  replica_ = 0;
  for (FeedPort* port : own_) port->used_ = 0;
  if (has_ports()) thread_ = std::thread([this] { serve(); });
}

void Feed::close() {
  if (!thread_.joinable()) return;
  quits_ = true;
  try {
    if (source_ != nullptr) source_->cancel();
    if (sink_ != nullptr) sink_->cancel();
  } catch (...) {  // The thread ends once next() or take() returns.
  }
  signal_.fetch_add(1);
  signal_.notify_all();
  thread_.join();
}

void Feed::rouse() {
  signal_.fetch_add(1);
  signal_.notify_one();
}

// Whether all rings have a slot for the next group of an infeed, or hold the next group of an
// outfeed.
bool Feed::can_move() const {
  const int64_t next = moved_.load(std::memory_order_relaxed);
  return std::all_of(own_.begin(), own_.end(), [&](const FeedPort* port) {
    const int64_t used = port->used_.load(std::memory_order_acquire);
    return plan_.input ? next - used < port->ring_.slots : used > next;
  });
}

void Feed::fill_views(int64_t element) {
  const size_t fields = plan_.rings.size();
  for (size_t f = 0; f < fields; ++f) {
    const auto& port = ports_[static_cast<size_t>(replica_) * fields + f];
    std::byte* const at = port != nullptr ? port->slot(element) : scratch_[f].data();
    in_[f].data = at;
    out_[f].data = at;
  }
}

bool Feed::move() {
  const int64_t group = moved_.load(std::memory_order_relaxed);
  element_ = group * replicas_ + replica_;
  fill_views(group);
  if (source_ != nullptr) {
    if (!source_->next(in_)) return false;
    elements_.fetch_add(1);
    pass();
    return true;
  }
  sink_->take(out_);
  pass();
  return true;
}

void Feed::pass() {
  if (++replica_ < replicas_) return;
  replica_ = 0;
  moved_.fetch_add(1);
}

void Feed::keep_error() {
  try {
    throw;
  } catch (const Error& e) {
    error_ = e;
  } catch (const std::exception& e) {
    error_ = Error(ErrorKind::kUsage, e.what());
  } catch (...) {
    error_ = Error(ErrorKind::kUsage, "an exception of unknown type");
  }
  error_->note(fmt::format("{} element {} of feed '{}'", plan_.input ? "making" : "taking",
                           element_, plan_.name));
}

void Feed::serve() {
  for (;;) {
    const uint32_t seen = signal_.load();
    if (quits_) return;
    if (!active_ || ended_ || failed_ || !can_move()) {
      signal_.wait(seen);
      continue;
    }
    try {
      if (!move()) ended_ = true;
    } catch (...) {
      keep_error();
      failed_ = true;
      // An element that the sink refuses is lost. The error is set before the element counts.
      if (sink_ != nullptr) {
        pass();
        shared_.sink_failed = true;
      }
    }
    shared_.events.notify();
  }
}

void Feed::begin(int64_t entries) {
  entries_ = entries;
  start_ = progress();
  for (FeedPort* port : own_) port->waits_ = false;
  if (entries == 0) return;
  active_ = true;
  if (failed_ && reported_) {
    reported_ = false;
    failed_ = false;
  }
  rouse();
}

void Feed::check(int64_t element, const FeedPort& port,
                 std::chrono::steady_clock::time_point since) {
  check_peers("waiting for");
  const bool late = failed_ || ended_;
  // The thread may have moved the element before it failed or ended.
  const int64_t moved = moved_.load(std::memory_order_acquire);
  if (plan_.input ? moved > element : element - moved < port.ring_.slots) return;
  if (late && failed_) {
    reported_ = true;
    throw Error(*error_);
  }
  if (late && plan_.input) {
    fail(ErrorKind::kUsage,
         "feed '{}': requested {} elements, produced {}; give more data or run fewer iterations",
         plan_.name, (exits_ ? element + 1 : start_ + entries_) * replicas_, elements_.load());
  }
  if (std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count() >
      shared_.deadline)
    miss_deadline(element, field_name(port.ring_));
}

// A process that waits for a source or sink receives no message that would show the error.
void Feed::check_peers(const char* doing) const {
  if (shared_.group == nullptr) return;
  try {
    shared_.group->check();
  } catch (Error& e) {
    throw e.note(fmt::format("{} feed '{}'", doing, plan_.name));
  }
}

void Feed::miss_deadline(int64_t element, const std::string& field) const {
  fail(ErrorKind::kIo,
       "feed '{}': element {} of field '{}' must be {} within {} s (feed_deadline), got no answer "
       "of the {}",
       plan_.name, element, field, plan_.input ? "made" : "taken", shared_.deadline,
       plan_.input ? "source" : "sink");
}

void Feed::flush(const std::atomic<bool>& stop) {
  if (plan_.input || entries_ == 0 || !has_ports()) return;
  const auto since = std::chrono::steady_clock::now();
  const int64_t last = progress();
  for (;;) {
    const uint32_t seen = shared_.events.count();
    // This run has an error. If the sink has another one, a later run reports it.
    if (stop.load()) return;
    const bool moved = moved_.load() >= last;
    check_sink();
    if (moved) return;
    check_peers("flushing");
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count() >
        shared_.deadline)
      miss_deadline(moved_.load(), field_name(plan_.rings.front()));
    shared_.events.await(seen, kTurn);
  }
}

void Feed::check_sink() {
  if (plan_.input || entries_ == 0 || !failed_) return;
  reported_ = true;
  throw Error(*error_);
}

void Feed::end() {
  if (!has_ports()) return;
  int64_t last = own_.front()->used_.load();
  for (const FeedPort* port : own_) {
    const int64_t used = port->used_.load();
    last = plan_.input ? std::max(last, used) : std::min(last, used);
  }
  for (FeedPort* port : own_) port->used_.store(last);
  entries_ = 0;
  rouse();
}

int64_t Feed::progress() const {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const FeedPort* port : own_) least = std::min(least, port->used_.load());
  return own_.empty() ? 0 : least;
}

Feeds::Feeds(const exe::Executable& executable, const Placement& placement, double deadline,
             std::shared_ptr<ProcessGroup> group)
    : executable_(executable),
      placement_(placement),
      of_stream_(exe::feeds_of_streams(executable)) {
  shared_.deadline = deadline;
  shared_.group = std::move(group);
  for (const exe::Feed& plan : executable.feeds)
    feeds_.push_back(std::make_unique<Feed>(executable, plan, placement, shared_));
}

std::vector<FeedPort*> Feeds::add_replica(int replica, const std::vector<std::byte*>& host_arenas) {
  if (feeds_.empty()) return {};
  std::vector<FeedPort*> ports(executable_.streams.size(), nullptr);
  for (const auto& feed : feeds_) {
    for (size_t f = 0; f < feed->plan().rings.size(); ++f) {
      const exe::FeedRing& ring = feed->plan().rings[f];
      if (!placement_.has_stream(replica, ring.stream)) continue;
      ports[static_cast<size_t>(ring.stream)] =
          feed->add_port(replica, f, host_arenas[static_cast<size_t>(ring.arena)]);
    }
  }
  return ports;
}

void Feeds::finish_replicas() {
  for (const auto& feed : feeds_) feed->add_scratch();
}

void Feeds::close() {
  for (const auto& feed : feeds_) feed->close();
}

void Feeds::begin(const exe::Program& program) {
  if (feeds_.empty()) return;
  shared_.waiting = 0;
  std::string unbound;
  const auto elements = [&](const Feed& feed) -> int64_t {
    for (const exe::StreamCount& s : program.streams) {
      if (s.stream == feed.plan().rings.front().stream) return s.entries;
    }
    return 0;
  };
  for (const auto& feed : feeds_) {
    if (elements(*feed) > 0 && feed->has_ports() && !feed->is_bound())
      unbound += fmt::format("{}'{}'", unbound.empty() ? "" : ", ", feed->plan().name);
  }
  require(unbound.empty(),
          "program '{}': its feeds must be bound before a run, got unbound {}; call "
          "Session::bind_feed",
          program.name, unbound);
  // A sink may still be taking elements of an earlier run. So reset first, then look.
  shared_.sink_failed = false;
  for (const auto& feed : feeds_) {
    feed->begin(elements(*feed));
    if (feed->has_failed_sink()) shared_.sink_failed = true;
  }
}

void Feeds::flush(const std::atomic<bool>& stop) {
  for (const auto& feed : feeds_) feed->flush(stop);
}

void Feeds::end() {
  for (const auto& feed : feeds_) feed->end();
  shared_.waiting = 0;
}

std::vector<std::pair<std::string, int64_t>> Feeds::progress() const {
  std::vector<std::pair<std::string, int64_t>> all;
  for (const auto& feed : feeds_) all.emplace_back(feed->plan().name, feed->progress());
  return all;
}

}  // namespace sluice::runtime
