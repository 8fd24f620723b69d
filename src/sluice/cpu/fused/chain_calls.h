#pragma once
#include <new>
#include <type_traits>

#include "sluice/cpu/fused/chain.h"

namespace sluice::cpu {

/// The calls that compute a part of a chain: the kernels of the stages, the conversions of their
/// operands and the stores of their results, with all addresses. A part of the same size has the
/// same calls at other addresses.
class Chain::Calls {
 public:
  Calls(const Chain& chain, const Parameters& parameters, std::byte* const* operands,
        float* scratch)
      : chain_(chain), parameters_(parameters), operands_(operands), scratch_(scratch) {}

  void run(const Block& part) {
    if (is_next(part)) {
      move_to(part);
    } else {
      part_ = part;
      full_index_ = chain_.full_index(part);
      resolve();
    }
    for (const Call& call : calls_) run_call(call);
  }
  /// Returns where the f32 values of a stage's result are, of the part that ran last.
  Elements result_of(int32_t stage) const {
    return chain_.result_of(stage, part_, operands_, scratch_);
  }

 private:
  enum class Task : uint8_t { kPrefetch, kWiden, kMap, kDropout, kRows, kStore };
  struct Call {
    Task task = Task::kMap;
    const Stage* stage = nullptr;
    const void* parameters = nullptr;
    MapFn map = nullptr;
    WidenFn widen = nullptr;
    int64_t input_bytes = 0;  // Bytes from a row of widened elements to the next.
    int64_t rows = 1;
    int64_t cols = 0;
    int input_count = 0;
    int output_count = 0;
    MapInput* inputs = nullptr;
    MapOutput* outputs = nullptr;  // Loops have several, a store whose values nobody reads none.
    float* stored = nullptr;       // Elements of the operand that a store writes.
    int64_t stored_bytes = 0;      // Bytes from a row of these to the next.
    bool streams = false;
  };
  // An address that depends on the part.
  template <typename T>
  struct Moving {
    T** address;
    Motion motion;
    int64_t size;          // Bytes of an element.
    const Shared* shared;  // Set if the motion is kShared.
  };
  // Each stage has a kernel and a store, and each of its inputs may be prefetched and widened. A
  // loop has no more operands than its stages.
  static constexpr size_t kMaxCalls = kMaxStages * (2 * kMaxMapInputs + 2);
  static constexpr size_t kMaxInputs = kMaxStages * (3 * kMaxMapInputs + 1);
  static constexpr size_t kMaxOutputs = kMaxStages * (kMaxMapInputs + 2);

  // Objects that are made one after the other; the others cost nothing.
  template <typename T, size_t kMax>
  class Pool {
   public:
    static_assert(std::is_trivially_destructible_v<T>);
    T* begin() { return std::launder(reinterpret_cast<T*>(bytes_)); }
    T* end() { return begin() + count_; }
    template <typename... Args>
    T& add(Args... args) {
      return *new (bytes_ + sizeof(T) * count_++) T{args...};
    }
    void clear() { count_ = 0; }

   private:
    size_t count_ = 0;
    alignas(T) std::byte bytes_[sizeof(T) * kMax];
  };

  Call& add(Task task, const Stage* stage) {
    Call& call = calls_.add();
    call.task = task;
    call.stage = stage;
    call.inputs = inputs_.end();
    call.outputs = outputs_.end();
    return call;
  }
  // The operands of a call are added before the next call.
  void add_input(Call& call, const Elements& from) {
    MapInput& input = inputs_.add(from.floats(), from.step, from.row_step);
    ++call.input_count;
    if (from.motion != Motion::kNone)
      moving_inputs_.add(&input.data, from.motion, from.size, from.shared);
  }
  void add_output(Call& call, const Elements& to) {
    MapOutput& output = outputs_.add(to.floats(), to.row_step);
    ++call.output_count;
    set_moving(output.data, to);
  }
  void set_moving(float*& address, const Elements& to) {
    if (to.motion != Motion::kNone) moving_outputs_.add(&address, to.motion, to.size, to.shared);
  }
  void set_part(Call& call) {
    call.rows = part_.rows;
    call.cols = part_.cols;
  }
  // Views the rows of a call as one row if they follow each other without gaps.
  void join_rows(Call& call) const;

  // Returns whether the calls of a part are those of the last one at other addresses.
  bool is_next(const Block& part) const {
    return resolved_ && part.rows == part_.rows && part.cols == part_.cols &&
           part.head_step == part_.head_step;
  }
  void move_to(const Block& part);
  void resolve();
  void add_widening(const Source& source);
  bool add_loop(const LoopStages& loop);
  void add_stage(size_t index);
  void add_store(const Stage& stage, bool streams, const Elements& values, bool writes_values);
  void run_call(const Call& call) const;
  void run_dropout(const Call& call) const;
  void run_rows(const Call& call) const;
  void run_store(const Call& call) const;

  const Chain& chain_;
  const Parameters& parameters_;
  std::byte* const* operands_;
  float* scratch_;
  Block part_;
  int64_t full_index_ = 0;  // Chain::full_index() of the part.
  bool resolved_ = false;
  Pool<Call, kMaxCalls> calls_;
  Pool<MapInput, kMaxInputs> inputs_;
  Pool<MapOutput, kMaxOutputs> outputs_;
  Pool<Moving<const float>, kMaxInputs> moving_inputs_;
  Pool<Moving<float>, kMaxOutputs> moving_outputs_;
};

}  // namespace sluice::cpu
