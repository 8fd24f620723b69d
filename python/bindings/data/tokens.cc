#include "sluice/data/text/tokens.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/arrays.h"
#include "python/bindings/data/datasets.h"
#include "python/bindings/data/elements.h"

namespace sluice::python {
namespace {

using data::Tokenizer;
using data::Tokens;

std::string path_text(const nb::object& path) {
  return nb::cast<std::string>(nb::module_::import_("os").attr("fspath")(path));
}

/// Returns ids as a list.
std::vector<int32_t> ids_of(nb::handle object) {
  const HostTensor ids = array_of(object, "ids");
  require(ids.dtype() == i32, "ids: must be integers, got {}", name_of(ids.dtype()));
  const std::span<const int32_t> values = ids.as<int32_t>();
  return {values.begin(), values.end()};
}

void bind_tokenizer(nb::module_& m) {
  nb::class_<Tokenizer>(m, "Tokenizer", "Maps texts to ids of tokens and back.")
      .def(
          "encode",
          [](const Tokenizer& self, const std::string& text) {
            const std::vector<int32_t> ids = unlocked([&] { return self.encode(text); });
            return to_numpy(HostTensor::of(Shape{static_cast<int64_t>(ids.size())}, i32, ids));
          },
          "text"_a, "Returns the ids of a text, int32 (n).")
      .def(
          "decode",
          [](const Tokenizer& self, const nb::object& ids) {
            const std::string text = self.decode(ids_of(ids));
            return nb::steal(
                PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
          },
          nb::sig("def decode(self, ids: object) -> str"), "ids"_a,
          "Returns the text of ids. Bytes that are not UTF-8 become U+FFFD.")
      .def_prop_ro("vocabulary_size", &Tokenizer::vocabulary_size);
}

}  // namespace

void bind_tokens(nb::module_& m) {
  bind_tokenizer(m);
  nb::class_<Tokens>(m, "Tokens", "A sequence of ids of tokens, in memory or in a file.")
      .def(
          "__init__",
          [](Tokens* self, const nb::object& ids, int64_t vocabulary) {
            new (self) Tokens(ids_of(ids), vocabulary);
          },
          "ids"_a, "vocabulary"_a)
      .def("__len__", &Tokens::size)
      .def_prop_ro("vocabulary", &Tokens::vocabulary, "All ids are in range(vocabulary).")
      .def(
          "range",
          [](const Tokens& self, int64_t begin, int64_t end) { return self.range(begin, end); },
          "begin"_a, "end"_a, "Returns tokens [begin, end).")
      .def(
          "read",
          [](const Tokens& self, int64_t begin, std::optional<int64_t> end) {
            const int64_t last = end.value_or(self.size());
            require(begin >= 0 && begin <= last && last <= self.size(),
                    "tokens: range must be in [0, {}], got [{}, {})", self.size(), begin, last);
            HostTensor ids(TensorSpec{Shape{last - begin}, i32, {}});
            unlocked([&] { self.read(begin, ids.as<int32_t>()); });
            return to_numpy(std::move(ids));
          },
          "begin"_a = 0, "end"_a = nb::none(), "Returns tokens [begin, end), int32.")
      .def(
          "split",
          [](const Tokens& self, std::optional<int64_t> tests) {
            data::TokenSplit parts =
                tests ? data::split_tokens(self, *tests) : data::split_tokens(self);
            return nb::make_tuple(std::move(parts.training), std::move(parts.test));
          },
          "tests"_a = nb::none(),
          "Returns tokens for training, and the last tenth or the last `tests` ones for a test.");
  m.def(
      "tokens_file",
      [](const nb::object& path, int64_t vocabulary) {
        return unlocked([&, p = path_text(path)] { return data::tokens_file(p, vocabulary); });
      },
      "path"_a, "vocabulary"_a = 65536,
      "Opens a file of ids: 16-bit little-endian integers, or a .npy array; or a folder of them.");
  m.def(
      "text_tokens",
      [](const nb::object& path, bool bytes) {
        const data::TextTokens made = unlocked([&, p = path_text(path)] {
          return data::text_tokens(p, bytes ? data::TextUnit::kByte : data::TextUnit::kCharacter);
        });
        return nb::make_tuple(std::const_pointer_cast<Tokenizer>(made.tokenizer), made.tokens);
      },
      "path"_a, "bytes"_a = false,
      "Returns the tokenizer and the tokens of a text: one for each character, or byte.");
  m.def(
      "random_windows",
      [](const Tokens& tokens, int64_t context, uint64_t seed) {
        return DatasetHandle(data::random_windows(tokens, {.context = context, .seed = seed}));
      },
      "tokens"_a, "context"_a = 64, "seed"_a = 0,
      "Draws windows without end: the fields 'input' and 'target', which begins one token later.");
  m.def(
      "consecutive_windows",
      [](const Tokens& tokens, int64_t context) {
        return DatasetHandle(data::consecutive_windows(tokens, context));
      },
      "tokens"_a, "context"_a, "Cuts tokens into windows that do not overlap, for evaluation.");
}

}  // namespace sluice::python
