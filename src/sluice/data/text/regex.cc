#include "sluice/data/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <limits>
#include <new>

#include "sluice/base/error.h"
#include "sluice/data/files/shown.h"
#include "sluice/data/files/utf8.h"

namespace sluice::data {
namespace {

constexpr size_t kMaxPattern = 65536;  // Bytes.
constexpr uint64_t kMinSteps = 10'000'000;
constexpr uint64_t kStepsOfByte = 64;
constexpr size_t kFirstStack = size_t{32} << 10;  // Bytes.
constexpr size_t kMaxStack = size_t{16} << 20;

/// Calls a function of PCRE2 that releases an object.
template <auto kFree>
struct Release {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using DataPointer = std::unique_ptr<pcre2_match_data, Release<pcre2_match_data_free>>;
using ContextPointer = std::unique_ptr<pcre2_match_context, Release<pcre2_match_context_free>>;
using StackPointer = std::unique_ptr<pcre2_jit_stack, Release<pcre2_jit_stack_free>>;

std::string reason_of(int error) {
  PCRE2_UCHAR8 text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

/// Whether `pattern` has a repetition such as {1,3} that ends before byte `end`.
bool ends_with_repetition(std::string_view pattern, size_t end) {
  size_t at = end - 1;  // The closing brace.
  while (at > 0 && (pattern[at - 1] == ',' || (pattern[at - 1] >= '0' && pattern[at - 1] <= '9')))
    --at;
  return at > 0 && at < end - 1 && pattern[at - 1] == '{';
}

/// Returns the first byte that Oniguruma and PCRE2 read differently, or npos.
size_t ambiguous_byte(std::string_view pattern) {
  bool in_class = false;
  for (size_t at = 0; at < pattern.size(); ++at) {
    const char c = pattern[at];
    const char next = at + 1 < pattern.size() ? pattern[at + 1] : '\0';
    if (c == '\\') {
      if (next == 'h' || next == 'H') return at;
      ++at;
    } else if (!in_class) {
      if (c == '}' && next == '+' && ends_with_repetition(pattern, at + 1)) return at;
      in_class = c == '[';
    } else {
      if (c == '[' || (c == '&' && next == '&')) return at;
      in_class = c != ']';
    }
  }
  return pattern.npos;
}

}  // namespace

struct Regex::Code {
  std::string file;
  std::string pattern;
  std::shared_ptr<pcre2_code> compiled;
};

Regex::Regex(const std::string& pattern, const std::string& file) {
  const auto refuse = [&](size_t byte, std::string_view reason) {
    fail(ErrorKind::kBadFile, "{}: the regular expression {}: byte {}: {}", file, shown(pattern),
         byte, reason);
  };
  if (pattern.size() > kMaxPattern) refuse(kMaxPattern, "must have at most 65536 bytes");
  if (const size_t byte = ambiguous_byte(pattern); byte != pattern.npos)
    refuse(byte,
           "must not have \\h, {n}+ or a class within a class: libraries read them variously");
  int error = 0;
  size_t byte = 0;
  // \C matches a byte, which would cut characters.
  constexpr uint32_t kFlags =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_UTF_CHECK;
  if (!is_utf8(pattern)) refuse(0, "must be UTF-8");
  const std::shared_ptr<pcre2_code> compiled(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR8>(pattern.data()), pattern.size(), kFlags, &error,
                    &byte, nullptr),
      pcre2_code_free);
  if (!compiled) refuse(byte, reason_of(error));
  pcre2_jit_compile(compiled.get(), PCRE2_JIT_COMPLETE);  // Without it, PCRE2 interprets the code.
  code_ = std::make_shared<const Code>(Code{file, pattern, compiled});
}

std::vector<TextRange> Regex::matches(std::string_view text) const {
  const DataPointer data(pcre2_match_data_create_from_pattern(code_->compiled.get(), nullptr));
  const ContextPointer context(pcre2_match_context_create(nullptr));
  StackPointer stack;  // Few searches need more than the stack that PCRE2 begins with.
  if (!data || !context) throw std::bad_alloc();
  const uint64_t steps = kMinSteps + kStepsOfByte * text.size();
  pcre2_set_match_limit(context.get(), static_cast<uint32_t>(std::min<uint64_t>(
                                           steps, std::numeric_limits<uint32_t>::max())));
  pcre2_set_heap_limit(context.get(), kMaxStack >> 10);  // KiB, for the interpreter.

  std::vector<TextRange> found;
  const auto subject = reinterpret_cast<PCRE2_SPTR8>(text.data());
  const size_t* const bounds = pcre2_get_ovector_pointer(data.get());
  size_t at = 0;
  while (at <= text.size()) {
    const int result = pcre2_match(code_->compiled.get(), subject, text.size(), at,
                                   PCRE2_NO_UTF_CHECK, data.get(), context.get());
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result == PCRE2_ERROR_JIT_STACKLIMIT && !stack) {
      stack.reset(pcre2_jit_stack_create(kFirstStack, kMaxStack, nullptr));
      if (!stack) throw std::bad_alloc();
      pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
      continue;
    }
    if (result < 0) {
      fail(ErrorKind::kBadFile, "{}: the regular expression {}: cannot be searched for: {}",
           code_->file, shown(code_->pattern), reason_of(result));
    }
    const TextRange range{bounds[0], bounds[1]};
    // \K in a lookaround can move the beginning to other characters.
    if (range.begin > range.end || range.begin < at) {
      fail(ErrorKind::kBadFile, "{}: the regular expression {}: must not use \\K in a lookaround",
           code_->file, shown(code_->pattern));
    }
    const bool is_repeated =
        range.begin == range.end && !found.empty() && found.back().end == range.end;
    if (!is_repeated) found.push_back(range);
    at = range.end;
    if (range.begin != range.end) continue;
    if (at == text.size()) break;
    at += std::max<size_t>(1, character_size(text.substr(at)));
  }
  return found;
}

}  // namespace sluice::data
