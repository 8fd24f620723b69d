"""Data: lazy datasets, loaders, and the queues of feeds.

    from sluice import data

    train = data.dataset({"image": images, "label": labels})
    loader = data.BatchLoader(train.map(flip, seed=1), batch=32)
    for epoch in range(3):
        for batch in loader:
            ...

An element of a dataset is an array, a tuple of arrays, or a dict of arrays. Devices have no float64
and no int64, so arrays of these dtypes become float32 and int32.
"""

import collections.abc
import json

from sluice._core import (
    BatchLoader, Dataset, ElementContext, InfeedQueue, Iterator, OutfeedQueue, Tokenizer, Tokens,
    concat, consecutive_windows, csv_columns, from_csv, from_function, from_generator, from_idx,
    from_mnist, from_npy, from_npz, from_safetensors, from_tensors, interleave, load_digits,
    random_windows, sample_from, text_tokens, tokens_file, write_npz, zip)
from sluice._core import dataset_benchmark as _dataset_benchmark
from sluice.errors import ArgumentTypeError, UsageError


def dataset(source, specs=None):
    """Returns a dataset over `source`:

    * a Dataset: the same.
    * an array, or a tuple or dict of arrays: its rows, as from_tensors() cuts them.
    * a pandas.DataFrame: its rows, as from_dataframe() reads them.
    * an object with len() and [k], such as a list or a map-style torch.utils.data.Dataset: its
      items, each made when it is asked for.
    * another iterable, such as a torch.utils.data.DataLoader or IterableDataset: its items, read
      anew in each pass.
    * a function that returns an iterable, such as a generator function: called in each pass.

    If `specs` are given (a TensorSpec, a tuple or a dict of them), each element must have them.
    """
    if isinstance(source, Dataset):
        return source
    if isinstance(source, (str, bytes)):
        raise ArgumentTypeError(
            f"dataset: must be data or a function, got {type(source).__name__}; "
            "from_npy(), from_csv() and others read files")
    if _is_frame(source):
        return from_dataframe(source)
    if isinstance(source, (tuple, dict)) or _is_array(source):
        return from_tensors(source)
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return from_function(len(source), source.__getitem__, specs)
    if isinstance(source, collections.abc.Iterator):
        return from_generator(_Once(source), specs)
    if hasattr(source, "__iter__"):
        return from_generator(source.__iter__, specs)
    if callable(source):
        return from_generator(source, specs)
    raise ArgumentTypeError(
        "dataset: must be arrays, a sequence, an iterable, a function or a DataFrame, got "
        f"{type(source).__name__}")


class _Once:
    """Returns an iterator once. It has no second pass."""

    def __init__(self, iterator):
        self._iterator = iterator

    def __call__(self):
        if self._iterator is None:
            raise UsageError(
                "dataset: an iterator can be read once; give a function that returns a new one")
        iterator, self._iterator = self._iterator, None
        return iterator


def _is_array(source):
    return hasattr(source, "shape") and (
        hasattr(source, "__array__") or hasattr(source, "__dlpack__"))


def _is_frame(source):
    return all(hasattr(source, name) for name in ("columns", "dtypes", "iloc", "to_numpy"))


def from_dataframe(frame, fields=None):
    """Returns the rows of a pandas.DataFrame. The numbers are copied.

    `fields` maps names to a column or a list of columns: {"x": ["width", "length"], "y": "label"}.
    Without it, each column is a field.
    """
    if fields is None:
        fields = {str(column): column for column in frame.columns}
    arrays = {}
    for name, columns in fields.items():
        wanted = columns if isinstance(columns, list) else [columns]
        for column in wanted:
            if column not in frame.columns:
                known = ", ".join(str(c) for c in frame.columns)
                raise UsageError(f"field '{name}': column must be one of {known}, got '{column}'")
            if frame[column].dtype.kind not in "biuf":
                raise UsageError(
                    f"field '{name}': column '{column}' must have numbers, got "
                    f"{frame[column].dtype}; convert it, as .astype('category').cat.codes does")
        arrays[name] = frame[columns].to_numpy()
    return from_tensors(arrays)


def dataset_benchmark(dataset, epochs=1, elements=1000, copy=True):
    """Measures how fast the host makes elements, without a device.

    Returns a dict of "epochs" (each with elements_per_second, bandwidth, …), "requested" and
    "produced". `copy` copies each array to a page of memory, as a feed does.
    """
    return json.loads(_dataset_benchmark(dataset, epochs, elements, copy))


__all__ = [
    "BatchLoader", "Dataset", "ElementContext", "InfeedQueue", "Iterator", "OutfeedQueue",
    "Tokenizer", "Tokens", "concat", "consecutive_windows", "csv_columns", "dataset",
    "dataset_benchmark", "from_csv", "from_dataframe", "from_function", "from_generator",
    "from_idx", "from_mnist", "from_npy", "from_npz", "from_safetensors", "from_tensors",
    "interleave", "load_digits", "random_windows", "sample_from", "text_tokens", "tokens_file",
    "write_npz", "zip",
]
