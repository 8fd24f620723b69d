#pragma once
#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/base/options/read_number.h"

namespace sluice {

/// The text of an option's value; several texts for a list.
using OptionTexts = std::vector<std::string>;

/// The values that an option has in JSON: true or false, an integer, a number, a string, or a list
/// of strings.
enum class OptionType : uint8_t { kFlag, kInteger, kNumber, kText, kList };

/// A condition without which an option of S has no effect.
template <typename S>
struct Requirement {
  /// The condition, with the name of an option in braces: "{accumulate} of at least 2".
  std::string text;
  std::function<bool(const S&)> is_met;
  /// Returns the value that does not meet it; null: the value of the option in braces.
  std::function<std::string(const S&)> found = nullptr;
  /// Whether OptionTable::check() requires it of a struct. If not, an option without it has no
  /// effect there.
  bool of_structs = true;
};

/// An option of a struct S, as data. Text, JSON, flags, help and defaults derive from it.
template <typename S>
struct Option {
  std::string name;  ///< "locations.weights" is member `weights` of member `locations`.
  OptionType type = OptionType::kText;
  std::string placeholder;  ///< Stands for the value in help: "N", "BYTES", "sum|mean".
  std::string help;         ///< An imperative with the unit: "Limit device memory to BYTES".
  std::function<std::string(const S&)> print;
  /// Sets the option; without its requirements, checks the texts alone. Error{kUsage} "must be …,
  /// got …" for a wrong text. Null: the option has no text form.
  std::function<void(S&, const OptionTexts&)> read = nullptr;
  std::vector<Requirement<S>> requirements = {};
  std::string flag = {};          ///< "--lr"; empty: the last part of the name.
  std::string default_text = {};  ///< The default in help; empty: the text of a default S.
  bool decides_bits = false;      ///< Whether the bits of a training depend on it.

  Option& that_decides_bits() {
    decides_bits = true;
    return *this;
  }
  Option& require(Requirement<S> requirement) {
    requirements.push_back(std::move(requirement));
    return *this;
  }
  Option& named(std::string the_flag) {
    flag = std::move(the_flag);
    return *this;
  }
  Option& defaults_to(std::string text) {
    default_text = std::move(text);
    return *this;
  }
};

/// The texts of the values of T.
template <typename T>
struct TextForm {
  OptionType type;
  std::string placeholder;  ///< As in Option.
  std::string values;       ///< All values, for errors: "an integer from 1 to 8".
  std::function<std::string(const T&)> print;
  std::function<std::optional<T>(const std::string&)> parse;  ///< Absent: a wrong text.
  std::vector<std::string> words = {};                        ///< Words for suggestions in errors.
};

namespace internal {
[[noreturn]] void refuse_text(const std::string& values, const std::string& text,
                              const std::vector<std::string>& words);
const std::string& only_text(const OptionTexts& texts);
std::string list_text(const OptionTexts& texts);
std::string usual_flag(const std::string& name);
/// Returns name of "… {name} …"; empty without braces.
std::string name_in_braces(const std::string& text);
/// Replaces "{name}" by name_of(name).
std::string replace_braces(const std::string& text,
                           const std::function<std::string(const std::string&)>& name_of);
/// Replaces "{name}" by "{prefix + name}".
std::string prefix_braces(const std::string& text, const std::string& prefix);
}  // namespace internal

namespace forms {

/// Integers of [min, max].
template <std::integral T = int64_t>
TextForm<T> integers(T min, T max = std::numeric_limits<T>::max()) {
  return {OptionType::kInteger, "N", fmt::format("an integer from {} to {}", min, max),
          [](const T& value) { return fmt::format("{}", value); },
          [min, max](const std::string& text) -> std::optional<T> {
            const std::optional<T> n = read_integer<T>(text);
            return n && *n >= min && *n <= max ? n : std::nullopt;
          }};
}

/// Real numbers of an interval. Without `max`, it has no end.
struct Interval {
  double min = 0;
  std::optional<double> max = std::nullopt;
  bool excludes_min = false;
  bool excludes_max = false;
};
TextForm<double> reals(const Interval& interval, const char* placeholder = "X");
/// Reals that float32 rounds neither to 0 nor to infinity, nor to a bound that the interval
/// excludes.
TextForm<double> floats(const Interval& interval, const char* placeholder = "X");

/// Bytes of at least `min`: "4096", "64M".
TextForm<int64_t> bytes(int64_t min = 0);
/// true or false; the flag of a command line has no value.
TextForm<bool> flags();
/// Any text that is not empty. An empty value is printed as "absent".
TextForm<std::string> texts(const char* placeholder);

/// A word and the value that it means. A word with a value that an earlier word has is another
/// spelling, which help does not show.
template <typename T>
using Words = std::vector<std::pair<std::string, T>>;

/// One of some words.
template <typename T>
TextForm<T> words(const Words<T>& all) {
  TextForm<T> form{OptionType::kText, "", "one of ", nullptr, nullptr};
  std::vector<T> seen;
  for (const auto& [word, value] : all) {
    form.words.push_back(word);
    if (std::find(seen.begin(), seen.end(), value) != seen.end()) continue;
    form.values += (seen.empty() ? "" : ", ") + word;
    form.placeholder += (seen.empty() ? "" : "|") + word;
    seen.push_back(value);
  }
  form.print = [all](const T& value) {
    for (const auto& [word, meaning] : all) {
      if (meaning == value) return word;
    }
    if constexpr (std::is_arithmetic_v<T>) return fmt::format("{}", value);
    return std::string("?");
  };
  form.parse = [all](const std::string& text) -> std::optional<T> {
    for (const auto& [word, meaning] : all) {
      if (word == text) return meaning;
    }
    return std::nullopt;
  };
  return form;
}

/// The form, and a word for a value: or_word("inf", kNeverShard, integers(0)). `alias` is another
/// spelling, which errors do not name.
template <typename T>
TextForm<T> or_word(const std::string& word, T value, TextForm<T> form,
                    const std::string& alias = "") {
  form.values = word + " or " + form.values;
  form.print = [=, inner = form.print](const T& v) { return v == value ? word : inner(v); };
  form.parse = [=, inner = form.parse](const std::string& text) {
    return text == word || (text == alias && !text.empty()) ? std::optional<T>(value) : inner(text);
  };
  return form;
}

/// Assigns the value of a text. Error{kUsage} "must be …, got …" for a wrong text.
template <typename Value, typename T>
void assign(Value& value, const TextForm<T>& form, const OptionTexts& texts) {
  const std::string& text = internal::only_text(texts);
  const std::optional<T> parsed = form.parse(text);
  if (!parsed) internal::refuse_text(form.values, text, form.words);
  value = static_cast<Value>(*parsed);
}

}  // namespace forms

/// Returns the value of a text. Error{kUsage} "<name>: must be …, got …" for a wrong text.
template <typename T>
T parse_value(std::string_view name, const TextForm<T>& form, const std::string& text) {
  const std::optional<T> value = form.parse(text);
  require(value.has_value(), "{}: must be {}, got '{}'", name, form.values, text);
  return *value;
}

/// Returns a function to a member of a member: member_path(&A::b, &B::c).
template <typename First, typename... More>
constexpr auto member_path(First first, More... more) {
  return [=](auto& s) -> auto& {
    if constexpr (sizeof...(more) == 0) {
      return std::invoke(first, s);
    } else {
      return member_path(more...)(std::invoke(first, s));
    }
  };
}

/// Returns the flag of an option: "--remote-memory" for session.remote_memory.
template <typename S>
std::string flag_of(const Option<S>& option) {
  return option.flag.empty() ? internal::usual_flag(option.name) : option.flag;
}

/// How a text names options: as JSON and C++ do, or as flags.
enum class OptionNames : uint8_t { kMembers, kFlags };

/// The options of a struct S, in an order in which each follows those that it requires.
template <typename S>
class OptionTable {
 public:
  Option<S>& add(Option<S> option) { return options_.emplace_back(std::move(option)); }

  /// Adds the option of a member: a pointer to it, or a function that returns a reference to it. If
  /// it is a std::optional without value, its text is `absent`.
  template <typename Member, typename T>
  Option<S>& add(const std::string& name, Member member, TextForm<T> form, std::string help,
                 std::string absent = "absent") {
    using Value = std::decay_t<std::invoke_result_t<Member, S&>>;
    const auto print = [=, inner = form.print](const S& s) {
      const Value& value = std::invoke(member, s);
      if constexpr (std::is_same_v<Value, std::optional<T>>) {
        return value ? inner(*value) : absent;
      } else {
        return inner(value);
      }
    };
    const auto read = [=](S& s, const OptionTexts& texts) {
      forms::assign(std::invoke(member, s), form, texts);
    };
    return add({name, form.type, form.placeholder, std::move(help), print, read});
  }

  /// Adds the option of a list of texts.
  template <typename Member>
  Option<S>& add_list(const std::string& name, Member member, const char* placeholder,
                      std::string help) {
    return add({name, OptionType::kList, placeholder, std::move(help),
                [member](const S& s) { return internal::list_text(std::invoke(member, s)); },
                [member](S& s, const OptionTexts& texts) { std::invoke(member, s) = texts; }});
  }

  /// Adds an option of a member. Its name gets a prefix.
  template <typename Member, typename Inner>
  Option<S>& add_member(const std::string& prefix, Member member, const Option<Inner>& inner) {
    Option<S> option{prefix + inner.name, inner.type, inner.placeholder, inner.help,
                     [=](const S& s) { return inner.print(std::invoke(member, s)); }};
    if (inner.read != nullptr)
      option.read = [=](S& s, const OptionTexts& texts) {
        inner.read(std::invoke(member, s), texts);
      };
    for (const Requirement<Inner>& r : inner.requirements) {
      Requirement<S> lifted{internal::prefix_braces(r.text, prefix),
                            [=](const S& s) { return r.is_met(std::invoke(member, s)); }, nullptr,
                            r.of_structs};
      if (r.found != nullptr)
        lifted.found = [=](const S& s) { return r.found(std::invoke(member, s)); };
      option.require(std::move(lifted));
    }
    option.flag = inner.flag;
    option.default_text = inner.default_text;
    option.decides_bits = inner.decides_bits;
    return add(std::move(option));
  }

  /// Adds all options of a member, named "prefix.option".
  template <typename Member, typename Inner>
  void add_members(const std::string& prefix, Member member, const OptionTable<Inner>& inner) {
    for (const Option<Inner>& o : inner) add_member(prefix + ".", member, o);
  }

  auto begin() const { return options_.begin(); }
  auto end() const { return options_.end(); }

  /// Returns the option with a name, which must be there.
  const Option<S>& find(std::string_view name) const {
    for (const Option<S>& option : options_) {
      if (option.name == name) return option;
    }
    fail(ErrorKind::kInternal, "options: no option is named '{}'", name);
  }

  /// Returns the text of a requirement, with the option in braces as flag or member.
  std::string text_of(const Requirement<S>& requirement, OptionNames names) const {
    return internal::replace_braces(requirement.text, [&](const std::string& name) {
      return names == OptionNames::kMembers ? name : flag_of(find(name));
    });
  }

  /// Sets an option. Error{kUsage} "--lr: must be …, got …" for a wrong text, and "--schedule
  /// requires --strategy pipelined (it is resident)" if a requirement is not met. A default without
  /// its requirement changes nothing.
  void set(const Option<S>& option, S& options, const OptionTexts& texts, OptionNames names) const {
    S changed = options;
    try {
      option.read(changed, texts);
    } catch (const Error& e) {
      fail(e.kind(), "{}: {}", names == OptionNames::kMembers ? option.name : flag_of(option),
           e.what());
    }
    constexpr bool kOfStruct = false;
    const bool is_default = texts == OptionTexts{option.print(S())};
    if (is_default && unmet(option, options, kOfStruct) != nullptr) return;
    check_requirements(option, options, names, kOfStruct);
    options = std::move(changed);
  }

  /// Checks a struct that C++ filled: numbers must be in their ranges, and an option that differs
  /// from the default must have what it requires. Error{kUsage} "<name>: must be …, got …".
  void check(const S& options) const {
    const S defaults;
    for (const Option<S>& o : options_) {
      const std::string text = o.print(options);
      if (o.read == nullptr || text == o.print(defaults)) continue;
      check_requirements(o, options, OptionNames::kMembers, /*of_struct=*/true);
      if (o.type != OptionType::kInteger && o.type != OptionType::kNumber) continue;
      S copy = options;
      try {
        o.read(copy, {text});
      } catch (const Error& e) {
        fail(e.kind(), "{}: {}", o.name, e.what());
      }
    }
  }

  /// Prints "name=value" for each option, with " (changed)" after values that a default S does not
  /// have.
  std::string print(const S& options) const {
    const S defaults;
    std::string text;
    for (const Option<S>& o : options_) {
      const std::string value = o.print(options);
      text +=
          fmt::format("{}={}{}\n", o.name, value, value == o.print(defaults) ? "" : " (changed)");
    }
    return text;
  }

 private:
  // Returns a requirement that is not met, or null.
  const Requirement<S>* unmet(const Option<S>& option, const S& options, bool of_struct) const {
    for (const Requirement<S>& r : option.requirements) {
      if ((r.of_structs || !of_struct) && !r.is_met(options)) return &r;
    }
    return nullptr;
  }

  void check_requirements(const Option<S>& option, const S& options, OptionNames names,
                          bool of_struct) const {
    const Requirement<S>* const r = unmet(option, options, of_struct);
    if (r == nullptr) return;
    const std::string found = r->found != nullptr
                                  ? r->found(options)
                                  : find(internal::name_in_braces(r->text)).print(options);
    fail(ErrorKind::kUsage, "{} requires {} (it is {})",
         names == OptionNames::kMembers ? option.name : flag_of(option), text_of(*r, names), found);
  }

  std::vector<Option<S>> options_;
};

}  // namespace sluice
