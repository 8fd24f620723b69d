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
      move(part.row - part_.row, part.col - part_.col);
      part_ = part;
    } else {
      part_ = part;
      resolve();
    }
    for (size_t i = 0; i < count_; ++i) run_call(calls()[i]);
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
    MapInput inputs[kMaxMapInputs];
    // Null in a store whose values nobody reads. Only loops have several.
    MapOutput outputs[LoopType::kMaxOutputs];
    float* stored = nullptr;   // Elements of the operand that a store writes.
    int64_t stored_bytes = 0;  // Bytes from a row of these to the next.
    bool streams = false;
  };
  // An address that depends on the part, and how far it moves with each row and column.
  template <typename T>
  struct Moving {
    T** address;
    int64_t row_bytes;
    int64_t col_bytes;
    void move(int64_t rows, int64_t cols) const {
      using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
      *address = reinterpret_cast<T*>(reinterpret_cast<Byte*>(*address) + rows * row_bytes +
                                      cols * col_bytes);
    }
  };
  // Each stage has a kernel and a store, and each of its inputs may be prefetched and widened. A
  // loop has no more operands than its stages.
  static constexpr size_t kMaxCalls = kMaxStages * (2 * kMaxMapInputs + 2);
  static constexpr size_t kMaxMovingInputs = kMaxStages * (3 * kMaxMapInputs + 1);
  static constexpr size_t kMaxMovingOutputs = kMaxStages * 2;
  static_assert(std::is_trivially_destructible_v<Call>);

  Call* calls() { return std::launder(reinterpret_cast<Call*>(storage_)); }
  Call& add(Task task, const Stage* stage) {
    Call& call = *new (storage_ + sizeof(Call) * count_++) Call;
    call.task = task;
    call.stage = stage;
    return call;
  }
  void add_input(Call& call, const Elements& from) {
    MapInput& input = call.inputs[call.input_count++];
    input = {from.floats(), from.step, from.row_step};
    if (from.size > 0) {
      moving_inputs_[moving_input_count_++] = {&input.data, from.row_step * from.size,
                                               from.step * from.size};
    }
  }
  void set_address(float*& address, const Elements& to) {
    address = to.floats();
    if (to.size > 0)
      moving_outputs_[moving_output_count_++] = {&address, to.row_step * to.size,
                                                 to.step * to.size};
  }
  void set_output(MapOutput& output, const Elements& to) {
    output.row_step = to.row_step;
    set_address(output.data, to);
  }
  void set_part(Call& call) {
    call.rows = part_.rows;
    call.cols = part_.cols;
  }
  // Views the rows of a call as one row if they follow each other without gaps.
  void join_rows(Call& call) const;

  bool is_next(const Block& part) const;
  void move(int64_t rows, int64_t cols);
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
  bool resolved_ = false;
  size_t count_ = 0, moving_input_count_ = 0, moving_output_count_ = 0;
  Moving<const float> moving_inputs_[kMaxMovingInputs];
  Moving<float> moving_outputs_[kMaxMovingOutputs];
  alignas(Call) std::byte storage_[sizeof(Call) * kMaxCalls];  // Only `count_` calls are made.
};

}  // namespace sluice::cpu
