#include "sluice/comm/mpi_group.h"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "sluice/base/sys.h"
#include "sluice/comm/launcher.h"

namespace sluice::comm {
namespace {

constexpr size_t kPiece = size_t{1} << 30;  // Counts of MPI are of type int.
constexpr auto kBeat = std::chrono::milliseconds(250);
constexpr auto kHurry = std::chrono::milliseconds(2);  // When all that is left is to leave.
constexpr int kPatience = 20;                          // Beats without a sign of life.
constexpr int kGrace = 8;  // Beats that others have to leave, after a failure.

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  fail(ErrorKind::kPeerLost, "{}: {}", call,
       std::string_view(text.data(), static_cast<size_t>(length)));
}

class MpiMessages final : public runtime::Messages {
 public:
  /// Sets `abandoned` if it goes while some are on their way.
  MpiMessages(MPI_Comm comm, int tag, std::atomic<bool>& abandoned)
      : comm_(comm), tag_(tag), abandoned_(abandoned) {}
  ~MpiMessages() override {
    for (MPI_Request& r : requests_) {
      if (r == MPI_REQUEST_NULL) continue;
      abandoned_ = true;
      MPI_Cancel(&r);
      MPI_Request_free(&r);
    }
  }

  void send(int to, std::span<const std::byte> bytes) override {
    for_pieces(bytes, [&](std::span<const std::byte> piece) {
      check_mpi(MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, to, tag_, comm_,
                          &requests_.emplace_back()),
                "MPI_Isend");
    });
  }
  void receive(int from, std::span<std::byte> bytes) override {
    for_pieces(bytes, [&](std::span<std::byte> piece) {
      check_mpi(MPI_Irecv(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, from, tag_, comm_,
                          &requests_.emplace_back()),
                "MPI_Irecv");
    });
  }
  bool done() override {
    if (requests_.empty()) return true;
    int all = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all,
                          MPI_STATUSES_IGNORE),
              "MPI_Testall");
    if (all == 0) return false;
    requests_.clear();
    return true;
  }

 private:
  template <typename Bytes, typename F>
  static void for_pieces(Bytes bytes, F&& f) {
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(kPiece, bytes.size())))
      f(bytes.first(std::min(kPiece, bytes.size())));
  }

  MPI_Comm comm_;
  int tag_;
  std::atomic<bool>& abandoned_;
  std::vector<MPI_Request> requests_;
};

// What processes tell each other at every beat.
struct Sign {
  enum class Kind : int32_t { kAlive, kFailed, kLeaving };  // In the order in which they are told.
  Kind kind = Kind::kAlive;
  ErrorKind error = ErrorKind::kInternal;
  std::array<char, 1000> text{};
};

// Cores for each process: what those of one host may use together, shared evenly; the same everywhere, as plans are.
int share_of_cores() {
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  int processes = 1;
  MPI_Comm_size(host, &processes);
  cpu_set_t own;
  CPU_ZERO(&own);
  sched_getaffinity(0, sizeof own, &own);
  std::vector<cpu_set_t> sets(static_cast<size_t>(processes));
  MPI_Allgather(&own, sizeof own, MPI_BYTE, sets.data(), sizeof own, MPI_BYTE, host);
  MPI_Comm_free(&host);
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const cpu_set_t& s : sets) CPU_OR(&all, &all, &s);
  int cores = CPU_COUNT(&all);
  const bool has_quota = sys::usable_cores() < CPU_COUNT(&own);
  if (has_quota) cores = std::min(cores, sys::usable_cores());
  int share = std::max(1, cores / processes);
  MPI_Allreduce(MPI_IN_PLACE, &share, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return share;
}

// A thread of its own sends and receives signs of life, whatever the others do: a process that computes for long is alive, a
// stopped one is not.
class MpiGroup final : public runtime::ProcessGroup {
 public:
  MpiGroup() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    cores_ = share_of_cores();
    for (MPI_Comm* const comm : {&data_, &signs_}) {
      MPI_Comm_dup(MPI_COMM_WORLD, comm);
      MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
    }
    last_words_.resize(static_cast<size_t>(size_));
    peers_ = std::vector<Peer>(static_cast<size_t>(size_));
    for (int p = 0; p < size_; ++p) {
      if (p != rank_) listen(p);
    }
    watch_ = std::thread([this] { watch(); });
  }

  ~MpiGroup() override {
    {
      const std::lock_guard lock(lock_);
      leaving_ = true;
    }
    wake_.notify_one();
    watch_.join();
    const bool orderly = all_left_ && !abandoned_;
    if (const auto error = error_or_loss(); error && !orderly) {
      MPI_Abort(MPI_COMM_WORLD, error->exit_code());
    }
    MPI_Finalize();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int usable_cores() const override { return cores_; }
  std::unique_ptr<runtime::Messages> messages(int tag) override {
    return std::make_unique<MpiMessages>(data_, tag, abandoned_);
  }
  void check() const override {
    if (!trouble_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(lock_);
    throw Error(others_ ? *others_ : *own_);
  }
  bool fail(const Error& error) override {
    std::unique_lock lock(lock_);
    if (others_ && std::string_view(error.what()).starts_with(others_->what()))
      return others_->kind() == ErrorKind::kPeerLost;
    if (!own_) own_ = error;
    trouble_.store(true, std::memory_order_release);
    wake_.notify_one();
    // One of those before this one speaks if it fails in the same way, which it may find later.
    const std::span<const std::optional<std::string>> before(last_words_.data(),
                                                             static_cast<size_t>(rank_));
    const auto have_ended = [&] {
      return std::ranges::all_of(before, [](const auto& words) { return words.has_value(); });
    };
    heard_.wait_for(lock, kBeat * kGrace, have_ended);
    return std::ranges::find(before, std::optional<std::string>(failure(error).text.data())) ==
           before.end();
  }

 private:
  struct Peer {
    MPI_Request in = MPI_REQUEST_NULL;
    MPI_Request out = MPI_REQUEST_NULL;
    Sign received;
    Sign sent;
    int silent = 0;  ///< Beats since it was heard.
    Sign::Kind told = Sign::Kind::kAlive;
    bool left = false;
  };

  void listen(int p) {
    Peer& peer = peers_[static_cast<size_t>(p)];
    MPI_Irecv(&peer.received, sizeof peer.received, MPI_BYTE, p, 0, signs_, &peer.in);
  }

  // At each beat, and when there is news.
  void watch() {
    auto last_beat = std::chrono::steady_clock::now();
    for (int grace = kGrace; grace > 0;) {
      bool leaving = false;
      std::optional<Error> own;
      bool troubled = false;
      {
        std::unique_lock lock(lock_);
        wake_.wait_for(lock, leaving_ ? kHurry : kBeat);
        leaving = leaving_;
        own = own_;
        troubled = own_.has_value() || others_.has_value();
      }
      // After a stop of this process too it is but one: others may have been stopped with it.
      const auto now = std::chrono::steady_clock::now();
      const bool beat = now - last_beat >= kBeat;
      if (beat) last_beat = now;
      if (beat && leaving && troubled) --grace;
      bool all_left = leaving;
      for (int p = 0; p < size_; ++p) {
        if (p == rank_) continue;
        Peer& peer = peers_[static_cast<size_t>(p)];
        hear(p, beat);
        if (own && peer.told < Sign::Kind::kFailed) {
          tell(p, failure(*own));
        } else if (leaving) {
          tell(p, Sign{.kind = Sign::Kind::kLeaving});
        } else if (beat) {
          tell(p, Sign{});
        }
        all_left = all_left && peer.left && peer.told == Sign::Kind::kLeaving && is_sent(peer);
      }
      all_left_ = all_left;
      if (all_left) return;
    }
  }

  static Sign failure(const Error& error) {
    Sign sign{.kind = Sign::Kind::kFailed, .error = error.kind()};
    const std::string_view text(error.what());
    std::copy_n(text.begin(), std::min(text.size(), sign.text.size() - 1), sign.text.begin());
    return sign;
  }

  static bool is_sent(Peer& peer) {
    int done = 1;
    if (peer.out != MPI_REQUEST_NULL) MPI_Test(&peer.out, &done, MPI_STATUS_IGNORE);
    return done != 0;
  }

  // Nothing if the last sign has not gone yet, so that what a stopped process does not take does not pile up.
  void tell(int p, const Sign& sign) {
    Peer& peer = peers_[static_cast<size_t>(p)];
    if (peer.told == Sign::Kind::kLeaving || !is_sent(peer)) return;
    peer.sent = sign;
    peer.told = std::max(peer.told, sign.kind);
    MPI_Isend(&peer.sent, sizeof peer.sent, MPI_BYTE, p, 0, signs_, &peer.out);
  }

  void hear(int p, bool beat) {
    Peer& peer = peers_[static_cast<size_t>(p)];
    if (peer.left) return;
    if (beat) ++peer.silent;
    for (int heard = 1; !peer.left;) {
      MPI_Test(&peer.in, &heard, MPI_STATUS_IGNORE);
      if (heard == 0) break;
      peer.silent = 0;
      peer.left = peer.received.kind == Sign::Kind::kLeaving;
      if (peer.received.kind != Sign::Kind::kAlive) set_last_words(p, peer.received.text.data());
      if (peer.received.kind == Sign::Kind::kFailed) {
        set_trouble(Error(peer.received.error,
                          fmt::format("process {}: {}", p, peer.received.text.data())));
      }
      if (!peer.left) listen(p);
    }
    if (peer.silent > kPatience && !peer.left) {
      const auto silence = std::chrono::duration_cast<std::chrono::seconds>(kPatience * kBeat);
      set_trouble(
          Error(ErrorKind::kPeerLost,
                fmt::format("process {} has given no sign of life for {} s", p, silence.count())));
    }
  }

  void set_last_words(int p, const char* text) {
    {
      const std::lock_guard lock(lock_);
      std::optional<std::string>& words = last_words_[static_cast<size_t>(p)];
      if (!words) words = text;
    }
    heard_.notify_all();
  }

  void set_trouble(const Error& error) {
    const std::lock_guard lock(lock_);
    if (others_) return;
    others_ = error;
    trouble_.store(true, std::memory_order_release);
  }

  std::optional<Error> error_or_loss() {
    const std::lock_guard lock(lock_);
    return own_ ? own_ : others_;
  }

  int rank_ = 0;
  int size_ = 1;
  int cores_ = 1;
  MPI_Comm data_ = MPI_COMM_NULL;
  MPI_Comm signs_ = MPI_COMM_NULL;
  std::vector<Peer> peers_;  ///< By rank; used by the watching thread alone.
  mutable std::mutex lock_;
  std::condition_variable wake_;
  bool leaving_ = false;
  std::optional<Error> own_;                            ///< What this process failed with,
  std::optional<Error> others_;                         ///< and what another one did first.
  std::vector<std::optional<std::string>> last_words_;  ///< Of those that failed or left, by rank.
  std::condition_variable heard_;
  bool all_left_ = false;               ///< At the end of watch(): nobody is left behind.
  std::atomic<bool> abandoned_{false};  ///< Messages will never arrive.
  std::atomic<bool> trouble_{false};    ///< There is one of either.
  std::thread watch_;
};

}  // namespace

std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string_view all(text.data(), static_cast<size_t>(length));
  return std::string(all.substr(0, all.find_first_of(",\n")));
}

std::shared_ptr<runtime::ProcessGroup> join_mpi() {
  if (launched_processes() == 1) return nullptr;
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  require(provided == MPI_THREAD_MULTIPLE,
          "this MPI ({}) does not let several threads call it, which signs of life need",
          mpi_version());
  return std::make_shared<MpiGroup>();
}

}  // namespace sluice::comm
