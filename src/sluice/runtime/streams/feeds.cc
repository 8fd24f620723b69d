#include "sluice/runtime/streams/feeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace sluice::runtime {
namespace {

constexpr std::chrono::microseconds kPollPeriod{1000};
// Waking the thread of an outfeed costs the program 10 to 60 µs, as long as a short step. After an
// element, the thread therefore polls once after this time: the elements of short steps wake it
// only if they fill half a ring.
constexpr std::chrono::microseconds kOutfeedPeriod{500};
thread_local bool is_feed_thread = false;

std::string name_of_stream(const exe::Executable& e, const exe::FeedRing& ring) {
  return e.streams[ring.stream].name;
}

}  // namespace

bool on_feed_thread() { return is_feed_thread; }

void FeedEvents::notify() {
  count_.fetch_add(1);
  if (sleepers_.load() == 0) return;
  const std::lock_guard lock(lock_);
  wake_.notify_all();
}

void FeedEvents::await(uint32_t seen) {
  std::unique_lock lock(lock_);
  sleepers_.fetch_add(1);
  wake_.wait(lock, [&] { return count_.load() != seen; });
  sleepers_.fetch_sub(1);
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
  if (element != counted_) count(element, moved);
  if (!is_ready) [[unlikely]]
    return wait(element);
  if (waits_.waits()) {
    waits_.end(feed_.clock_.read());
    feed_.shared_.waiting.fetch_sub(1);
  }
  return true;
}

void FeedPort::count(int64_t element, int64_t moved) {
  counted_ = element;
  if (occupancy_.empty()) return;
  const int64_t held = feed_.plan_.input ? moved - element : element - moved;
  add_to(at(occupancy_, held), 1);
}

bool FeedPort::wait(int64_t element) {
  if (!waits_.waits()) {
    waits_.begin(feed_.clock_.read());
    feed_.shared_.waiting.fetch_add(1);
  }
  feed_.check(element, *this);
  return false;
}

void FeedPort::reset() {
  used_ = 0;
  counted_ = -1;
  waits_.reset();
  for (auto& count : occupancy_) count = 0;
}

void FeedPort::done() {
  const int64_t used = used_.load(std::memory_order_relaxed) + 1;
  used_.store(used);  // In one order with polls_ (Feed::rest).
  feed_.notify(used - feed_.moved_.load(std::memory_order_relaxed), ring_.slots);
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
    const TensorSpec& spec = executable.streams[ring.stream].spec;
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

void Feed::finish_ports() {
  const size_t fields = plan_.rings.size();
  for (size_t first = 0; first < ports_.size(); first += fields) {
    FeedPort* counts = nullptr;
    for (size_t f = 0; f < fields; ++f) {
      FeedPort* const port = ports_[first + f].get();
      if (port == nullptr) continue;
      if (counts == nullptr || port->ring_.slots < counts->ring_.slots) counts = port;
    }
    if (counts == nullptr) continue;
    counts->occupancy_ =
        std::vector<std::atomic<int64_t>>(static_cast<size_t>(counts->ring_.slots) + 1);
  }
  for (size_t p = 0; p < ports_.size() && has_ports(); ++p) {
    const size_t field = p % fields;
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
  cause_ = nullptr;
  moved_ = elements_ = host_time_ = 0;
  replica_ = 0;
  clock_.reset();
  waits_for_program_.reset();
  waits_at_end_.reset();
  for (FeedPort* port : own_) port->reset();
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
  signal_.notify();
  thread_.join();
}

void Feed::rest(uint32_t seen, bool polls) {
  if (!polls) return signal_.await(seen);
  polls_ = true;
  signal_.await(seen, kOutfeedPeriod);
  polls_ = false;  // An element that no signal has followed is seen from here on.
}

void Feed::notify(int64_t held, int64_t slots) {
  if (plan_.input || 2 * held >= slots || !polls_) signal_.notify();
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
  {
    const TimedScope time(host_time_);
    if (source_ == nullptr) {
      sink_->take(out_);
    } else if (!source_->next(in_)) {
      return false;
    }
  }
  elements_.fetch_add(1);
  pass();
  return true;
}

void Feed::pass() {
  if (++replica_ < replicas_) return;
  replica_ = 0;
  moved_.fetch_add(1);
}

void Feed::keep_error() {
  cause_ = std::current_exception();
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

// Each strand notes its step in an error of its own.
void Feed::throw_error() const {
  try {
    std::rethrow_exception(cause_);
  } catch (...) {
    std::throw_with_nested(Error(*error_));
  }
}

void Feed::serve() {
  is_feed_thread = true;
  bool polls = false;
  for (;;) {
    const uint32_t seen = signal_.count();
    if (quits_) return;
    if (!active_ || ended_ || failed_) {
      signal_.await(seen);
      continue;
    }
    if (!can_move()) {
      if (!waits_for_program_.waits()) waits_for_program_.begin(clock_.read());
      rest(seen, polls);
      polls = false;
      continue;
    }
    polls = sink_ != nullptr;
    if (waits_for_program_.waits()) waits_for_program_.end(clock_.read());
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
  if (entries == 0) return;
  if (has_ports()) clock_.start();
  active_ = true;
  if (failed_ && reported_) {
    reported_ = false;
    failed_ = false;
  }
  signal_.notify();
}

void Feed::check(int64_t element, const FeedPort& port) {
  check_peers("waiting for");
  const bool late = failed_ || ended_;
  // The thread may have moved the element before it failed or ended.
  const int64_t moved = moved_.load(std::memory_order_acquire);
  if (plan_.input ? moved > element : element - moved < port.ring_.slots) return;
  if (late && failed_) {
    reported_ = true;
    throw_error();
  }
  if (late && plan_.input) {
    fail(ErrorKind::kUsage,
         "feed '{}': requested {} elements, produced {}; give more data or run fewer iterations",
         plan_.name, (exits_ ? element + 1 : start_ + entries_) * replicas_, elements_.load());
  }
  if (static_cast<double>(clock_.read() - port.waits_.since()) > shared_.deadline * 1e9)
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
  const int64_t last = progress();
  if (moved_.load() < last) {
    waits_at_end_.begin(clock_.read());
    signal_.notify();
  }
  await_sink(last, stop);
  waits_at_end_.end(clock_.read());
}

void Feed::await_sink(int64_t last, const std::atomic<bool>& stop) {
  const auto since = std::chrono::steady_clock::now();
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
    shared_.events.await(seen, kPollPeriod);
  }
}

void Feed::check_sink() {
  if (plan_.input || entries_ == 0 || !failed_) return;
  reported_ = true;
  throw_error();
}

void Feed::end() {
  if (!has_ports()) return;
  int64_t last = own_.front()->used_.load();
  for (const FeedPort* port : own_) {
    const int64_t used = port->used_.load();
    last = plan_.input ? std::max(last, used) : std::min(last, used);
  }
  const int64_t now = clock_.read();
  for (FeedPort* port : own_) {
    port->used_.store(last);
    port->waits_.end(now);
  }
  waits_at_end_.end(now);
  clock_.stop();
  entries_ = 0;
  signal_.notify();
}

int64_t Feed::progress() const {
  int64_t min = std::numeric_limits<int64_t>::max();
  for (const FeedPort* port : own_) min = std::min(min, port->used_.load());
  return own_.empty() ? 0 : min;
}

FeedCounters Feed::counters() const {
  const int64_t now = clock_.read();
  FeedCounters c{.name = plan_.name, .input = plan_.input, .depth = plan_.depth};
  // In this order, an infeed has made all elements that are read, and an outfeed stored all that
  // are taken, also during a run.
  if (!plan_.input) c.moved = elements_.load();
  c.used = progress() * replicas_;
  if (plan_.input) c.moved = elements_.load();
  for (const ArrayView& field : in_) c.bytes += c.moved * field.spec.bytes();
  c.host_nanoseconds = host_time_.load(std::memory_order_relaxed);
  waits_for_program_.add_to_sum(c.waits_for_program, now);
  waits_at_end_.add_to_sum(c.waits_at_end, now);
  for (const FeedPort* port : own_) {
    port->waits_.add_to_sum(c.waits_for_host, now);
    const auto& counts = port->occupancy_;
    c.occupancy.resize(std::max(c.occupancy.size(), counts.size()));
    for (size_t k = 0; k < counts.size(); ++k)
      c.occupancy[k] += counts[k].load(std::memory_order_relaxed);
  }
  c.run_nanoseconds = clock_.read();  // Last, so that no wait exceeds it.
  return c;
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

Ids<exe::StreamId, FeedPort*> Feeds::add_replica(int replica,
                                                 const Ids<exe::ArenaId, std::byte*>& host_arenas) {
  if (feeds_.empty()) return {};
  Ids<exe::StreamId, FeedPort*> ports(executable_.streams.size(), nullptr);
  for (const auto& feed : feeds_) {
    for (size_t f = 0; f < feed->plan().rings.size(); ++f) {
      const exe::FeedRing& ring = feed->plan().rings[f];
      if (!placement_.has_stream(replica, ring.stream)) continue;
      ports[ring.stream] = feed->add_port(replica, f, host_arenas[ring.arena]);
    }
  }
  return ports;
}

void Feeds::finish_replicas() {
  for (const auto& feed : feeds_) feed->finish_ports();
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

std::vector<FeedCounters> Feeds::counters() const {
  std::vector<FeedCounters> all;
  for (const auto& feed : feeds_) all.push_back(feed->counters());
  return all;
}

}  // namespace sluice::runtime
