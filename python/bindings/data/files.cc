#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/arrays.h"
#include "python/bindings/data/datasets.h"
#include "python/bindings/data/elements.h"
#include "sluice/data/samples.h"

/// Sources that read files. They call no Python, so they run without the interpreter's lock.
namespace sluice::python {
namespace {

/// Returns the path of a str or of an os.PathLike.
std::string path_of(const nb::object& path) {
  return nb::cast<std::string>(nb::module_::import_("os").attr("fspath")(path));
}

data::IdxPixels pixels(bool raw) {
  return raw ? data::IdxPixels::kRaw : data::IdxPixels::kNormalised;
}

data::Split split_of(const std::string& name) {
  require(name == "train" || name == "test", "split: must be 'train' or 'test', got '{}'", name);
  return name == "train" ? data::Split::kTrain : data::Split::kTest;
}

data::CsvColumn column_of(nb::handle column) {
  if (nb::isinstance<nb::int_>(column)) return nb::cast<int>(column);
  return nb::cast<std::string>(column);
}

/// Converts a field: a column, a list of columns, or a tuple of one of them and a dtype.
data::CsvField csv_field(const std::string& name, nb::handle value) {
  data::CsvField field{.name = name};
  nb::object columns = nb::borrow(value);
  if (nb::isinstance<nb::tuple>(value)) {
    require(nb::len(value) == 2, "field '{}': must be (columns, dtype), got {} entries", name,
            nb::len(value));
    columns = value[0];
    field.dtype = dtype_argument(value[1]);
  }
  if (nb::isinstance<nb::list>(columns)) {
    for (const nb::handle c : columns) field.columns.push_back(column_of(c));
  } else {
    field.column = column_of(columns);
  }
  return field;
}

data::CsvOptions csv_options(const std::optional<nb::dict>& fields, std::optional<bool> header,
                             const std::string& separator) {
  require(separator.size() == 1, "separator: must be one character, got '{}'", separator);
  data::CsvOptions options{.separator = separator[0]};
  if (header) options.header = *header ? data::CsvHeader::kYes : data::CsvHeader::kNo;
  if (fields) {
    for (const auto [name, value] : *fields)
      options.fields.push_back(csv_field(nb::cast<std::string>(name), value));
  }
  return options;
}

void bind_arrays_of_files(nb::module_& m) {
  m.def(
      "from_npy",
      [](const nb::object& path) {
        return unlocked([p = path_of(path)] { return DatasetHandle(data::from_npy(p)); });
      },
      "path"_a, "Reads an array that numpy.save wrote, or a folder of them, cut along axis 0.");
  m.def(
      "from_npz",
      [](const nb::object& path, const std::vector<std::string>& fields) {
        return unlocked(
            [&, p = path_of(path)] { return DatasetHandle(data::from_npz(p, fields)); });
      },
      "path"_a, "fields"_a = nb::tuple(),
      "Reads arrays that numpy.savez wrote, cut along axis 0. The field of array x is 'x'. "
      "`fields` chooses arrays and their order.");
  m.def(
      "from_safetensors",
      [](const nb::object& path, const std::vector<std::string>& fields) {
        return unlocked(
            [&, p = path_of(path)] { return DatasetHandle(data::from_safetensors(p, fields)); });
      },
      "path"_a, "fields"_a = nb::tuple(),
      "Reads tensors of a safetensors file, or of a folder of them, cut along axis 0.");
  m.def(
      "write_npz",
      [](const nb::object& path, const nb::dict& arrays,
         const std::map<std::string, std::vector<std::string>>& texts) {
        std::vector<NamedArray> named;
        for (const auto [name, array] : arrays) {
          const auto text = nb::cast<std::string>(name);
          named.push_back({text, array_of(array, "array '" + text + "'")});
        }
        std::vector<data::NamedTexts> named_texts;
        for (const auto& [name, lines] : texts) named_texts.push_back({name, lines});
        unlocked([&, p = path_of(path)] { data::write_npz(p, named, named_texts); });
      },
      "path"_a, "arrays"_a, "texts"_a = nb::dict(),
      "Writes a dict of arrays, and of lists of texts, as numpy.savez does. Equal arrays produce "
      "equal bytes.");
}

void bind_idx(nb::module_& m) {
  m.def(
      "from_idx",
      [](const nb::object& images, const nb::object& labels, bool raw) {
        return unlocked([&, i = path_of(images), l = path_of(labels)] {
          return DatasetHandle(data::from_idx(i, l, pixels(raw)));
        });
      },
      "images"_a, "labels"_a, "raw"_a = false,
      "Reads IDX files, plain or gzip, of images and their labels: the fields 'image' and 'label'. "
      "Grey values are normalised to float32, or uint8 if `raw`.");
  m.def(
      "from_mnist",
      [](const nb::object& folder, const std::string& split, bool raw) {
        return unlocked([&, f = path_of(folder)] {
          return DatasetHandle(data::from_idx(f, split_of(split), pixels(raw)));
        });
      },
      "folder"_a, "split"_a = "train", "raw"_a = false,
      "Reads the files of MNIST in a folder, or in its folder 'mnist', as from_idx() does.");
  m.def(
      "load_digits",
      [](const std::string& split, const nb::object& folder) {
        data::Samples samples = unlocked([&, f = folder.is_none() ? "" : path_of(folder)] {
          return data::load_digits(split_of(split), f);
        });
        return nb::make_tuple(to_numpy(std::move(samples.images)),
                              to_numpy(std::move(samples.labels)), samples.source);
      },
      "split"_a = "train", "folder"_a = nb::none(),
      "Returns images (n, 28, 28), labels (n) and their source: MNIST if its files are found, and "
      "otherwise generated digits.");
}

void bind_csv(nb::module_& m) {
  m.def(
      "from_csv",
      [](const nb::object& path, const std::optional<nb::dict>& fields, std::optional<bool> header,
         const std::string& separator) {
        return unlocked([p = path_of(path), options = csv_options(fields, header, separator)] {
          return DatasetHandle(data::from_csv(p, options));
        });
      },
      "path"_a, "fields"_a = nb::none(), "header"_a = nb::none(), "separator"_a = ",",
      "Reads numbers from a CSV file, plain or gzip, or from a folder: one element for each "
      "record.\n\n"
      "`fields` maps names to a column, a list of columns, or a tuple of these and a dtype: "
      "{'x': ['width', 'length'], 'y': ('species', 'int32')}. A column is a name or a number. "
      "Without fields, an element is an array of all columns. `header` None: it is detected.");
  m.def(
      "csv_columns",
      [](const nb::object& path, std::optional<bool> header, const std::string& separator) {
        return unlocked([p = path_of(path), options = csv_options({}, header, separator)] {
          return data::csv_columns(p, options);
        });
      },
      "path"_a, "header"_a = nb::none(), "separator"_a = ",",
      "Returns the names of the columns by the header, or '0', '1', … without one.");
}

}  // namespace

void bind_files(nb::module_& m) {
  bind_arrays_of_files(m);
  bind_idx(m);
  bind_csv(m);
}

}  // namespace sluice::python
