#include "sluice/train/order/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "sluice/base/error.h"
#include "sluice/base/ids/ids_format.h"

namespace sluice::train {
namespace {

constexpr std::string_view kWords[] = {"seeds", "forward", "backward", "both", "norm", "update"};
constexpr size_t kMaxDepth = 8;  // Loops inside each other: i to p.

char name_of_loop(size_t depth) { return static_cast<char>('i' + depth); }

std::string to_string(const Affine& a) {
  std::string text;
  for (size_t d = 0; d < a.factors.size(); ++d) {
    const int64_t f = a.factors[d];
    if (f == 0) continue;
    const std::string_view sign = f < 0 ? (text.empty() ? "-" : " - ") : text.empty() ? "" : " + ";
    text += sign;
    if (f != 1 && f != -1) text += fmt::format("{} * ", f < 0 ? -f : f);
    text += name_of_loop(d);
  }
  if (text.empty()) return fmt::format("{}", a.constant);
  if (a.constant != 0)
    text += fmt::format(" {} {}", a.constant < 0 ? '-' : '+',
                        a.constant < 0 ? -a.constant : a.constant);
  return text;
}

void append(const std::vector<OrderItem>& items, size_t depth, std::string& text) {
  const std::string indent(2 * depth, ' ');
  for (const OrderItem& item : items) {
    if (const Task* task = item.task()) {
      text += indent + to_string(*task) + "\n";
      continue;
    }
    const OrderLoop& loop = *item.loop();
    text += fmt::format("{}for {} in {} {{\n", indent, name_of_loop(depth), loop.trips);
    append(loop.body, depth + 1, text);
    text += indent + "}\n";
  }
}

// Reads the lines of an order, word for word.
class Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) {}

  Order parse() {
    Order order;
    read_items(0, order.items);
    if (has_line_) fail_at("a '}' without a loop");
    return order;
  }

 private:
  [[noreturn]] void fail_at(std::string_view found) const {
    fail(ErrorKind::kUsage,
         "order, line {}: must be a task, 'for NAME in TRIPS {{' or '}}' of a loop, got {}",
         number_, found);
  }

  // Splits the next line that is not empty into words; a comma ends a word.
  bool next_line() {
    while (!rest_.empty()) {
      const size_t end = std::min(rest_.find('\n'), rest_.size());
      std::string_view line = rest_.substr(0, end);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      ++number_;
      words_.clear();
      position_ = 0;
      size_t begin = 0;
      for (size_t at = 0; at <= line.size(); ++at) {
        const bool ends = at == line.size() || line[at] == ' ' || line[at] == ',';
        if (!ends) continue;
        if (at > begin) words_.push_back(line.substr(begin, at - begin));
        if (at < line.size() && line[at] == ',') words_.push_back(line.substr(at, 1));
        begin = at + 1;
      }
      if (!words_.empty()) return has_line_ = true;
    }
    return has_line_ = false;
  }

  std::string_view peek() const {
    return position_ < words_.size() ? words_[position_] : std::string_view();
  }
  std::string_view next() {
    const std::string_view word = peek();
    ++position_;
    return word;
  }
  void expect(std::string_view word) {
    const std::string_view found = next();
    if (found != word) fail_at(fmt::format("'{}' in place of '{}'", found, word));
  }
  int64_t number(std::string_view word) const {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (word.empty() || error != std::errc() || end != word.data() + word.size())
      fail_at(fmt::format("'{}' in place of a number", word));
    return value;
  }

  void read_items(size_t depth, std::vector<OrderItem>& items) {
    while (next_line()) {
      if (peek() == "}") {
        next();
        end_line();
        return;
      }
      if (peek() != "for") {
        items.emplace_back(read_task(depth));
        continue;
      }
      next();
      if (depth == kMaxDepth) fail_at(fmt::format("more than {} loops in each other", kMaxDepth));
      expect(std::string(1, name_of_loop(depth)));
      expect("in");
      OrderLoop loop{.trips = number(next())};
      if (loop.trips < 1) fail_at(fmt::format("{} trips; at least 1 is right", loop.trips));
      expect("{");
      end_line();
      const int64_t begin = number_;
      read_items(depth + 1, loop.body);
      if (!has_line_) fail_at(fmt::format("the end; the loop of line {} lacks its '}}'", begin));
      items.emplace_back(std::move(loop));
    }
  }

  Task read_task(size_t depth) {
    const auto word = std::find(std::begin(kWords), std::end(kWords), peek());
    if (word == std::end(kWords)) fail_at(fmt::format("'{}'", peek()));
    next();
    Task task{.kind = static_cast<TaskKind>(word - std::begin(kWords))};
    bool has_micro_batch = false;
    while (!peek().empty()) {
      if (peek() == ",") next();
      const std::string_view what = next();
      if (what == "stage") {
        task.stage = StageId(number(next()));
      } else if (what == "block") {
        task.block = read_affine(depth);
      } else if (what == "micro-batch" && task.has_micro_batch()) {
        task.micro_batch = read_affine(depth);
        has_micro_batch = true;
      } else {
        fail_at(fmt::format("'{}'", what));
      }
    }
    if (task.has_micro_batch() && !has_micro_batch) fail_at("a task without its micro-batch");
    return task;
  }

  Affine read_affine(size_t depth) {
    Affine a;
    int64_t sign = 1;
    for (bool first = true;; first = false) {
      std::string_view word = peek();
      if (word.empty() || word == ",") {
        if (first) fail_at("no number");
        return a;
      }
      if (!first) {
        if (word != "+" && word != "-") fail_at(fmt::format("'{}' in place of + or -", word));
        sign = next() == "-" ? -1 : 1;
        word = peek();
      } else if (word.size() > 1 && word[0] == '-' && word[1] >= 'i') {
        sign = -1;
        word.remove_prefix(1);
      }
      next();
      read_term(word, sign, depth, a);
    }
  }

  // A term is "3", "i" or "3 * i".
  void read_term(std::string_view word, int64_t sign, size_t depth, Affine& a) {
    const auto is_loop = [&](std::string_view w) {
      return w.size() == 1 && w[0] >= 'i' && w[0] < name_of_loop(depth);
    };
    int64_t factor = 1;
    if (!is_loop(word)) {
      factor = number(word);
      if (peek() != "*") {
        a.constant += sign * factor;
        return;
      }
      next();
      word = next();
      if (!is_loop(word)) fail_at(fmt::format("'{}' in place of a loop around the task", word));
    }
    const auto d = static_cast<size_t>(word[0] - 'i');
    if (a.factors.size() <= d) a.factors.resize(d + 1);
    a.factors[d] += sign * factor;
  }

  void end_line() const {
    if (!peek().empty()) fail_at(fmt::format("'{}' after the line's end", peek()));
  }

  std::string_view rest_;
  int64_t number_ = 0;
  bool has_line_ = false;
  std::vector<std::string_view> words_;
  size_t position_ = 0;
};

}  // namespace

int64_t Affine::at(std::span<const int64_t> iterations) const {
  int64_t value = constant;
  for (size_t d = 0; d < factors.size() && d < iterations.size(); ++d)
    value += factors[d] * iterations[d];
  return value;
}

bool OrderLoop::operator==(const OrderLoop&) const = default;

std::string_view to_string(TaskKind kind) { return at(kWords, kind); }

std::string to_string(const Task& task) {
  std::string text(to_string(task.kind));
  if (task.has_micro_batch() || task.block) text += fmt::format(" stage {}", task.stage);
  if (task.block) text += ", block " + to_string(*task.block);
  if (task.has_micro_batch()) text += ", micro-batch " + to_string(task.micro_batch);
  return text;
}

std::string to_string(const Order& order) {
  std::string text;
  append(order.items, 0, text);
  return text;
}

Order parse_order(std::string_view text) { return Parser(text).parse(); }

void for_each_row(const std::vector<OrderItem>& items, size_t depth,
                  const std::function<void(const Task&)>& run) {
  for (const OrderItem& item : items) {
    if (const Task* task = item.task()) run(*task);
    const OrderLoop* const loop = item.loop();
    if (loop == nullptr) continue;
    for_each_row(loop->body, depth + 1, [&](const Task& t) {
      const int64_t rows = t.block ? t.block->factor(depth) : 0;
      if (rows == 0) return run(t);
      Task row = t;
      row.block->factors[depth] = 0;
      for (int64_t r = 0; r < loop->trips; ++r, row.block->constant += rows) run(row);
    });
  }
}

}  // namespace sluice::train
